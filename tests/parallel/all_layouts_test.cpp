// Every valid layout, in parts, so that scripts/test.sh --full goes on where it was cut off.
#include <gtest/gtest.h>

#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_matrix.h"

namespace megatron::testing {
namespace {

constexpr size_t kNumParts = 64;

class AllLayouts : public ::testing::TestWithParam<size_t> {};

TEST_P(AllLayouts, TrainAsOneRankDoes) {
  const std::vector<LayoutCase> all = all_layouts();
  std::vector<LayoutCase> part;
  for (size_t i = GetParam(); i < all.size(); i += kNumParts) part.push_back(all[i]);
  expect_one_rank_curves(part, 3);
}

TEST_P(AllLayouts, LoadWhatOthersSave) { expect_reshards(100 + GetParam(), 4); }

INSTANTIATE_TEST_SUITE_P(Parts, AllLayouts, ::testing::Range(size_t{0}, kNumParts));

}  // namespace
}  // namespace megatron::testing
