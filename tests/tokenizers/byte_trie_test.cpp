#include "megatron/tokenizers/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace megatron {
namespace {

using Prefixes = std::vector<std::pair<size_t, TokenId>>;

Prefixes prefixes_in(const ByteTrie& trie, std::string_view text) {
  Prefixes found;
  trie.for_each_prefix(text, [&](size_t length, TokenId id) { found.emplace_back(length, id); });
  return found;
}

TEST(ByteTrie, FindsEveryKeyThatATextStartsWithAndNoOther) {
  std::mt19937 random(3);
  for (const int num_bytes : {2, 30, 256}) {
    std::map<std::string, TokenId> keys;
    const auto any_text = [&](size_t longest) {
      std::string text(1 + random() % longest, '\0');
      for (char& c : text) c = static_cast<char>(random() % num_bytes);
      return text;
    };
    for (TokenId id = 0; id < 3000; ++id) keys.emplace(any_text(6), id);
    const ByteTrie trie({keys.begin(), keys.end()});
    for (int i = 0; i < 3000; ++i) {
      const std::string text = any_text(9);
      Prefixes expected;
      for (size_t length = 1; length <= text.size(); ++length)
        if (const auto key = keys.find(text.substr(0, length)); key != keys.end())
          expected.emplace_back(length, key->second);
      ASSERT_EQ(prefixes_in(trie, text), expected);
    }
  }
  EXPECT_TRUE(prefixes_in(ByteTrie({}), "text").empty());
}

}  // namespace
}  // namespace megatron
