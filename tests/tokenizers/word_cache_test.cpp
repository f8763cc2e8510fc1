#include "megatron/tokenizers/word_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

namespace megatron {
namespace {
/// The ids of a word with `readable` bytes behind its start; {-1} if it is not known.
std::vector<TokenId> look_up(const WordCache& cache, const std::string& word, size_t more_readable) {
  const std::string text = word + std::string(more_readable, 'x');
  IdBuffer ids;
  const std::array<size_t, 2> bounds = {0, word.size()};
  cache.append_words(text, bounds, text.size(), ids, [&ids](std::string_view) { ids.push_back(-1); });
  std::vector<TokenId> result(ids.ids().begin(), ids.ids().end());
  IdBuffer alone;
  if (!cache.append(word, alone)) alone.push_back(-1);
  EXPECT_TRUE(std::ranges::equal(alone.ids(), result));
  return result;
}

/// Words of all lengths that differ in their first, last or any byte, among them NUL and bytes above 127.
std::string random_word(std::mt19937& random) {
  std::string word(1 + random() % 20, 'a');
  if (random() % 50 == 0) word.resize(200 + random() % 100, 'b');
  for (int i = 0; i < 3; ++i) word[random() % word.size()] = static_cast<char>(random() % 256);
  return word;
}

std::vector<TokenId> ids_of(const std::string& word) {
  std::vector<TokenId> ids(std::hash<std::string>()(word) % 7);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(std::hash<std::string>()(word) % 50'000 + i);
  return ids;
}

TEST(WordCache, KnownWordsHaveTheirIdsWhateverFollowsThem) {
  WordCache cache;
  std::mt19937 random(3);
  size_t num_known = 0;
  for (int i = 0; i < 300'000; ++i) {  // more than the tables hold
    const std::string word = random_word(random);
    const std::vector<TokenId> ids = look_up(cache, word, random() % 20);
    if (ids == std::vector<TokenId>{-1}) {
      cache.insert(word, ids_of(word));
      const bool is_kept = word.size() <= LongWordTable::kMaxWordBytes;
      if (is_kept) {
        ASSERT_EQ(look_up(cache, word, random() % 20), ids_of(word));
      }
    } else {
      ++num_known;
      ASSERT_EQ(ids, ids_of(word));
    }
  }
  EXPECT_GT(num_known, 1000u);
}

TEST(WordCache, WordsOfATextHaveTheirIdsInOrderWhateverIsInsertedMeanwhile) {
  WordCache cache;
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    std::vector<size_t> bounds = {0};
    std::vector<TokenId> expected;
    for (size_t count = 1 + random() % 300; count > 0; --count) {
      const std::string word = random() % 4 == 0 ? random_word(random) : std::to_string(random() % 5000);
      text += word;
      bounds.push_back(text.size());
      std::ranges::copy(ids_of(word), std::back_inserter(expected));
    }
    IdBuffer ids;
    const std::string exact(text);  // nothing may be read behind it
    cache.append_words(exact, bounds, exact.size(), ids, [&](std::string_view word) {
      cache.insert(word, ids_of(std::string(word)));
      ids.append(ids_of(std::string(word)));
    });
    ASSERT_TRUE(std::ranges::equal(ids.ids(), expected));
  }
}

TEST(WordCache, WordsThatAreEqualUpToTrailingNulsAreDifferent) {
  WordCache cache;
  cache.insert("ab", std::vector<TokenId>{7});
  EXPECT_EQ(look_up(cache, std::string("ab\0", 3), 0), std::vector<TokenId>{-1});
  EXPECT_EQ(look_up(cache, "ab", 0), std::vector<TokenId>{7});
}

}  // namespace
}  // namespace megatron
