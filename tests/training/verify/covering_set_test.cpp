#include "megatron/training/verify/covering_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace megatron {
namespace {

using Pairs = std::set<std::vector<int64_t>>;

Pairs pairs_in(const std::vector<FactorValues>& rows, const std::vector<size_t>& chosen) {
  Pairs pairs;
  for (const size_t row : chosen)
    for (int64_t a = 0; a < std::ssize(rows[row]); ++a)
      for (int64_t b = a + 1; b < std::ssize(rows[row]); ++b)
        pairs.insert({a, rows[row][static_cast<size_t>(a)], b, rows[row][static_cast<size_t>(b)]});
  return pairs;
}

/// Four factors of 2, 3, 4 and 2 values; the second and the third are never both at their largest.
std::vector<FactorValues> combinations() {
  std::vector<FactorValues> rows;
  for (const int64_t a : {0, 7})
    for (const int64_t b : {0, 1, 2})
      for (const int64_t c : {1, 2, 4, 8})
        for (const int64_t d : {0, 1})
          if (b < 2 || c < 8) rows.push_back({a, b, c, d});
  return rows;
}

TEST(CoveringSet, HasEveryPairThatAnyRowHas) {
  const std::vector<FactorValues> rows = combinations();
  std::vector<size_t> all(rows.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  const std::vector<size_t> chosen = pairwise_covering_set(rows);
  EXPECT_EQ(pairs_in(rows, chosen), pairs_in(rows, all));
  EXPECT_LT(chosen.size(), rows.size() / 2);
  EXPECT_GE(chosen.size(), 11) << "so many pairs have the second and the third factor";
  EXPECT_EQ(pairwise_covering_set(rows), chosen);
}

TEST(CoveringSet, NeedsEveryRowWhereTwoFactorsMayBeAnything) {
  EXPECT_THAT(pairwise_covering_set({{0, 0}, {0, 1}, {1, 0}, {1, 1}}), ::testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(pairwise_covering_set({{0, 0}, {0, 0}}), ::testing::ElementsAre(0));
  EXPECT_THAT(pairwise_covering_set({}), ::testing::IsEmpty());
}

}  // namespace
}  // namespace megatron
