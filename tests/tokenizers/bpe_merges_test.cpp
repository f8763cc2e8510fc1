#include "megatron/tokenizers/bpe_merges.h"

#include <gtest/gtest.h>

#include <random>

namespace megatron {
namespace {
/// The definition: of all neighbours with a rule, join the pair of the lowest rank, leftmost first; again.
std::vector<TokenId> merge_plainly(const BpeMerges& merges, std::vector<TokenId> symbols) {
  while (true) {
    const BpeMerges::Rule* best = nullptr;
    size_t place = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i)
      if (const auto* rule = merges.find(symbols[i], symbols[i + 1]); rule && (!best || rule->rank < best->rank))
        best = rule, place = i;
    if (!best) return symbols;
    symbols[place] = best->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

TEST(BpeMerger, EqualsTheDefinitionForRandomRulesAndWords) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    // Tokens are strings, so that equal pairs give equal tokens; ranks do not follow the order of lengths.
    std::vector<std::string> tokens = {"a", "b", "c"};
    BpeMerges merges;
    for (int rule = 0; rule < 12; ++rule) {
      const size_t left = random() % tokens.size(), right = random() % tokens.size();
      const std::string joined = tokens[left] + tokens[right];
      const auto known = std::find(tokens.begin(), tokens.end(), joined);
      const auto result = static_cast<TokenId>(known - tokens.begin());
      if (known == tokens.end()) tokens.push_back(joined);
      merges.add(static_cast<TokenId>(left), static_cast<TokenId>(right), result);
    }
    BpeMerger merger(merges);
    for (int word = 0; word < 20; ++word) {
      std::vector<TokenId> symbols(random() % 60);
      for (TokenId& symbol : symbols) symbol = static_cast<TokenId>(random() % 3);
      const std::vector<TokenId> expected = merge_plainly(merges, symbols);
      merger.merge(symbols);
      ASSERT_EQ(symbols, expected);
    }
  }
}

TEST(BpeMerger, LongWordsDoNotTakeQuadraticTime) {
  BpeMerges merges;
  for (TokenId id = 0; id < 18; ++id) merges.add(id, id, id + 1);  // doubles
  std::vector<TokenId> symbols(size_t{1} << 18, 0);
  BpeMerger(merges).merge(symbols);
  EXPECT_EQ(symbols, std::vector<TokenId>{18});
}

TEST(BpeMerges, APairHasOneRule) {
  BpeMerges merges;
  EXPECT_TRUE(merges.add(1, 2, 3));
  EXPECT_FALSE(merges.add(1, 2, 4));
  EXPECT_EQ(merges.find(1, 2)->result, 3);
  EXPECT_EQ(merges.find(2, 1), nullptr);
}
}  // namespace
}  // namespace megatron
