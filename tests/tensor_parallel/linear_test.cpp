#include "megatron/tensor_parallel/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

constexpr int64_t kRows = 4, kIn = 6, kOut = 8;
using enum LinearCommunication;

struct Case {
  LinearCommunication communication = kNone;
  Phase phase = Phase::kBW;
  bool has_bias = false, is_frozen = false;
};

/// Dimensions that ranks cut: of the weight [o, i], of x [s, b, i] and of y [s, b, o]; -1: whole on every rank.
struct Cuts {
  int weight, x, y;
};
Cuts cuts_of(LinearCommunication communication) {
  switch (communication) {
    case kCopyInput:
      return {0, -1, 2};
    case kGatherInput:
      return {0, 0, 2};
    case kReduceOutput:
      return {1, 2, -1};
    case kScatterOutput:
      return {1, 2, 0};
    case kNone:
      break;
  }
  return {-1, -1, -1};
}

/// This rank's part of a tensor, as a tensor of its own.
Tensor part_of(const Context& ctx, const Tensor& whole, int dim, const ProcessGroup& group) {
  if (dim < 0) return whole;
  const int64_t length = whole.size(dim) / group.size();
  const Tensor slice = whole.slice(dim, group.rank() * length, length);
  Tensor part = ctx.empty("part", slice.shape(), slice.dtype());
  launch(ctx, [&](auto& stream) { kernels::copy(stream, {.x = slice.view(), .y = part.view()}); });
  return part;
}

std::unique_ptr<Parameter> make_parameter(const Context& ctx, const std::string& name, const Shape& shape, int dim,
                                          const ProcessGroup& group, bool is_trainable) {
  ShardSpec shard = ShardSpec::whole(shape);
  if (dim >= 0) shard.cut = ShardCut{.dim = dim, .sections = {{shape[dim], false}}};
  auto p = std::make_unique<Parameter>(ctx, ParameterOptions{.name = name,
                                                             .shard = shard,
                                                             .dtype = DType::kFloat64,
                                                             .shard_rank = group.rank(),
                                                             .num_shards = dim < 0 ? 1 : group.size(),
                                                             .is_trainable = is_trainable,
                                                             .init_std = 1});
  p->initialize(ctx);
  p->set_main_grad(ctx.empty("gradient", p->shape(), DType::kFloat64, MemoryUse::kGradients));
  p->begin_step();
  return p;
}

struct Result {
  Tensor y, dx, dweight, dbias;
};

/// The op and its gradients on this rank's parts of the same x, weight, bias and dy.
Result run(Context ctx, const Case& c, const ProcessGroup& group) {
  const Cuts cuts = group.size() == 1 ? cuts_of(kNone) : cuts_of(c.communication);
  const auto weight = make_parameter(ctx, "w", {kOut, kIn}, cuts.weight, group, !c.is_frozen);
  const auto bias = make_parameter(ctx, "b", {kOut}, cuts.weight == 0 ? 0 : -1, group, true);
  Tensor x = ctx.empty("x", {kRows, 2, kIn}, DType::kFloat64), dy = ctx.empty("dy", {kRows, 2, kOut}, DType::kFloat64);
  fill_uniform(ctx, x, "x");
  fill_uniform(ctx, dy, "dy");
  x = part_of(ctx, x, cuts.x, group);
  Tape tape(ctx.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  tape.watch(x);
  Result result;
  result.y = linear_with_communication(ctx, x, *weight, c.has_bias ? bias.get() : nullptr, group, c.communication);
  tape.seed(ctx, result.y.slot, part_of(ctx, dy, cuts.y, group));
  tape.backward(ctx, c.phase, 0);
  if (c.phase == Phase::kB) tape.backward_weight(ctx, 0);
  EXPECT_TRUE(tape.is_done());
  result.y = result.y.detach();
  result.dx = tape.take_gradient(x.slot);
  if (!c.is_frozen) result.dweight = weight->main_grad();
  if (c.has_bias) result.dbias = bias->main_grad();
  return result;
}

void expect_part(const Context& ctx, const Tensor& part, const Tensor& whole, int dim, const ProcessGroup& group) {
  if (!whole.defined()) return;
  const std::vector<double> actual = values_of(part), expected = values_of(part_of(ctx, whole, dim, group));
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)  // sums of at most 8 products, normal times uniform numbers
    ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance(DType::kFloat64, 8, std::sqrt(8))) << i;
}

void expect_parts_of_one_rank(const Case& c) {
  SCOPED_TRACE(fmt::format("communication {}, phase {}, bias {}, frozen {}", static_cast<int>(c.communication),
                           static_cast<int>(c.phase), c.has_bias, c.is_frozen));
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1), alone(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    const Cuts cuts = cuts_of(c.communication);
    {
      const Result whole = run(alone.context(), c, {}), own = run(ctx, c, rank.group);
      expect_part(ctx, own.y, whole.y, cuts.y, rank.group);
      expect_part(ctx, own.dx, whole.dx, cuts.x, rank.group);
      expect_part(ctx, own.dweight, whole.dweight, cuts.weight, rank.group);
      expect_part(ctx, own.dbias, whole.dbias, 0, rank.group);
    }
    EXPECT_EQ(test.device.arena.total().live, 0);
  });
}

TEST(ParallelLinear, RanksHaveThePartsOfOneRank) {
  for (const auto communication : {kCopyInput, kGatherInput, kReduceOutput, kScatterOutput})
    for (const Phase phase : {Phase::kB, Phase::kBW}) {
      const bool is_column = communication == kCopyInput || communication == kGatherInput;
      expect_parts_of_one_rank({communication, phase, is_column, false});
      expect_parts_of_one_rank({communication, phase, false, true});
    }
}

TEST(ParallelLinear, AFrozenWeightWithATrainedBiasNeedsNoInput) {
  for (const auto communication : {kCopyInput, kGatherInput})
    for (const Phase phase : {Phase::kB, Phase::kBW}) expect_parts_of_one_rank({communication, phase, true, true});
}

TEST(ParallelLinear, RefusesABiasThatWouldBeAddedOnEveryRank) {
  EXPECT_THROW(expect_parts_of_one_rank({kReduceOutput, Phase::kBW, true, false}), RankFailure);
}

}  // namespace
}  // namespace megatron::testing
