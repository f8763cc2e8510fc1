#include "megatron/comm/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/comm/buffers.h"

namespace megatron {
namespace {

using testing::same_bits;
using testing::values_of;

template <class T>
std::vector<T> reduce(ReduceOp op, std::vector<std::vector<T>> inputs, int64_t piece) {
  const auto n = static_cast<int64_t>(inputs[0].size());
  std::vector<T> output(inputs[0].size());
  for (int64_t begin = 0; begin < n; begin += piece) {
    std::vector<const void*> sources;
    for (const auto& input : inputs) sources.push_back(input.data() + begin);
    void* destination = output.data() + begin;
    reduce_in_rank_order(dtype_of<T>(), op, sources, {&destination, 1}, std::min(piece, n - begin));
  }
  return output;
}

TEST(Reduce, BitsDoNotDependOnTheSplitIntoCalls) {
  std::vector<std::vector<BFloat16>> inputs;
  for (int rank = 0; rank < 7; ++rank) inputs.push_back(values_of<BFloat16>(rank, 5000));
  const auto whole = reduce(ReduceOp::kAverage, inputs, 5000);
  for (int64_t piece : {1, 3, 1023, 1024, 1025, 4999})
    EXPECT_TRUE(same_bits(whole, reduce(ReduceOp::kAverage, inputs, piece))) << piece;
}

TEST(Reduce, SumsFromTheFirstRankToTheLast) {
  const float big = 1e8f;  // 1 is below half of its last place
  EXPECT_EQ(reduce<float>(ReduceOp::kSum, {{big}, {1}, {-big}, {1}}, 1)[0], 1.0f);
  EXPECT_EQ(reduce<float>(ReduceOp::kSum, {{big}, {-big}, {1}, {1}}, 1)[0], 2.0f);
}

TEST(Reduce, HalfPrecisionSumsRoundOnce) {
  const float small = 0x1p-8f;  // half of bfloat16's last place at 1: lost when added one by one
  EXPECT_EQ(float{reduce<BFloat16>(ReduceOp::kSum, {{BFloat16(1.0f)}, {BFloat16(small)}, {BFloat16(small)}}, 1)[0]},
            1 + 2 * small);
  EXPECT_EQ(float{reduce<Float16>(ReduceOp::kSum, {{Float16(2048.0f)}, {Float16(1.0f)}, {Float16(1.0f)}}, 1)[0]}, 2050);
}

TEST(Reduce, IntegersAreExactAndWrap) {
  const int64_t large = (int64_t{1} << 62) + 1;
  EXPECT_EQ(reduce<int64_t>(ReduceOp::kSum, {{large}, {-1}, {5}}, 1)[0], large + 4);
  EXPECT_EQ(reduce<int32_t>(ReduceOp::kSum, {{std::numeric_limits<int32_t>::max()}, {1}}, 1)[0],
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(reduce<uint8_t>(ReduceOp::kSum, {{250}, {10}}, 1)[0], 4);
  EXPECT_EQ(reduce<int32_t>(ReduceOp::kMin, {{-3}, {2}}, 1)[0], -3);
  EXPECT_EQ(reduce<int32_t>(ReduceOp::kMax, {{-3}, {2}}, 1)[0], 2);
  EXPECT_EQ(reduce<int64_t>(ReduceOp::kMax, {{large}, {-large}}, 1)[0], large);
}

TEST(Reduce, MaximumAndMinimumKeepNaNOfAnyRank) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    EXPECT_TRUE(std::isnan(reduce<float>(op, {{nan}, {1}, {2}}, 1)[0]));
    EXPECT_TRUE(std::isnan(reduce<float>(op, {{1}, {nan}, {2}}, 1)[0]));
    EXPECT_TRUE(std::isnan(reduce<float>(op, {{1}, {2}, {nan}}, 1)[0]));
  }
}

TEST(Reduce, RejectsDtypesWithoutArithmetic) {
  uint8_t value = 0;
  const void* input = &value;
  void* output = &value;
  EXPECT_THROW(reduce_in_rank_order(DType::kFloat8E4M3, ReduceOp::kSum, {&input, 1}, {&output, 1}, 1), DtypeError);
}

}  // namespace
}  // namespace megatron
