#include "megatron/tensor_parallel/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/kernels/elementwise.h"
#include "tests/testing/logged_group.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {
namespace {

constexpr int64_t kBatch = 2;
using enum LinearCommunication;

struct Case {
  LinearCommunication communication = kNone;
  Phase phase = Phase::kBW;
  bool has_bias = false, is_frozen = false;
  TensorCommOverlap overlap = {};
  int64_t s = 4, in = 6, out = 8;
  DType dtype = DType::kFloat64;
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
                                          const ProcessGroup& group, DType dtype, bool is_trainable) {
  ShardSpec shard = ShardSpec::whole(shape);
  if (dim >= 0) shard.cuts = {ShardCut{.dim = dim, .sections = {{shape[dim], false}}}};
  auto p = std::make_unique<Parameter>(ctx, ParameterOptions{.name = name,
                                                             .shard = shard,
                                                             .dtype = dtype,
                                                             .place = {.tensor = {group.rank(), group.size()}},
                                                             .is_trainable = is_trainable,
                                                             .init_std = 1});
  p->initialize(ctx);
  p->set_main_grad(ctx.empty("gradient", p->shape(), dtype, MemoryUse::kGradients));
  p->begin_step();
  return p;
}

struct Result {
  Tensor y, dx, dweight, dbias;
};

/// The op and its gradients on this rank's parts of the same x, weight, bias and dy.
Result run(Context ctx, const Case& c, const ProcessGroup& group) {
  const Cuts cuts = group.size() == 1 ? cuts_of(kNone) : cuts_of(c.communication);
  const auto weight = make_parameter(ctx, "w", {c.out, c.in}, cuts.weight, group, c.dtype, !c.is_frozen);
  const auto bias = make_parameter(ctx, "b", {c.out}, cuts.weight == 0 ? 0 : -1, group, c.dtype, true);
  Tensor x = ctx.empty("x", {c.s, kBatch, c.in}, c.dtype), dy = ctx.empty("dy", {c.s, kBatch, c.out}, c.dtype);
  fill_uniform(ctx, x, "x");
  fill_uniform(ctx, dy, "dy");
  x = part_of(ctx, x, cuts.x, group);
  Tape tape(ctx.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  tape.watch(x);
  Result result;
  result.y = linear_with_communication(ctx, x, *weight, c.has_bias ? bias.get() : nullptr, group,
                                       {.kind = c.communication, .overlap = c.overlap});
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
  for (size_t i = 0; i < actual.size(); ++i)  // sums of at most 40 products, normal times uniform numbers
    ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance(DType::kFloat64, 40, std::sqrt(40))) << i;
}

void expect_parts_of_one_rank(const Case& c, int num_ranks = 2) {
  SCOPED_TRACE(fmt::format("{} ranks, communication {}, phase {}, bias {}, frozen {}, {} {} {} splits", num_ranks,
                           static_cast<int>(c.communication), static_cast<int>(c.phase), c.has_bias, c.is_frozen,
                           c.overlap.num_gather_splits, c.overlap.num_scatter_splits, c.overlap.num_dgrad_splits));
  run_ranks(num_ranks, [&](RankContext& rank) {
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

/// Also more splits than rows, and parts that are not alike.
TEST(ParallelLinear, InPartsRanksHaveThePartsOfOneRank) {
  for (const int64_t splits : {1, 2, 3, 7})
    for (const auto communication : {kGatherInput, kScatterOutput})
      for (const Phase phase : {Phase::kB, Phase::kBW})
        for (const bool is_frozen : {false, true})
          expect_parts_of_one_rank({.communication = communication,
                                    .phase = phase,
                                    .has_bias = communication == kGatherInput,
                                    .is_frozen = is_frozen,
                                    .overlap = {splits, splits, splits},
                                    .s = 20,
                                    .in = 12,
                                    .out = 8},
                                   4);
}

/// fp64: bit for bit, for its matmuls are by the built-in tiles, which give a row the same bits whatever rows are
/// beside it. Below, oneDNN may add up the terms of a row in another order if there are fewer rows.
void expect_same_but_for_orders_of_summation(const Result& actual, const Result& expected, const Case& c) {
  const int64_t length = std::max({c.in, c.out, c.s * kBatch});
  for (const auto member : {&Result::y, &Result::dx, &Result::dweight, &Result::dbias}) {
    if (!(expected.*member).defined()) continue;
    const std::vector<double> a = values_of(actual.*member), b = values_of(expected.*member);
    if (c.dtype == DType::kFloat64) {
      EXPECT_EQ(a, b);
      continue;
    }
    double largest = 0, error = 0;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(b[i]));
      error = std::max(error, std::abs(a[i] - b[i]));
    }
    EXPECT_LE(error, tolerance(c.dtype, DType::kFloat32, length, largest, largest));
  }
}

TEST(ParallelLinear, PartsChangeNoBitOfFp64AndBelowOnlyOrdersOfSummation) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16})
    for (const auto communication : {kGatherInput, kScatterOutput})
      for (const int64_t splits : {1, 2, 5}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name_of(dtype), static_cast<int>(communication), splits));
        const Case plain{.communication = communication, .s = 52, .in = 192, .out = 96, .dtype = dtype};
        Case in_parts = plain;
        in_parts.overlap = {splits, splits, splits};
        run_ranks(4, [&](RankContext& rank) {
          TestDevice test(DeviceKind::kCpu, 1);
          expect_same_but_for_orders_of_summation(run(test.context(), in_parts, rank.group),
                                                  run(test.context(), plain, rank.group), plain);
        });
      }
}

/// Returns the operations of rank 1 of `num_ranks`, each of which has 4 positions of 2 samples.
RankLog log_of(LinearCommunication communication, const TensorCommOverlap& overlap, int num_ranks) {
  const Case c{.communication = communication, .overlap = overlap, .s = 4 * num_ranks, .in = 12, .out = 8};
  RankLog result;
  run_ranks(num_ranks, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    RankLog log;
    LoggedProducts products(log);
    LoggedGroup group(rank.group, rank.world.recorder(), log);
    test.device.profiler = &products;
    run(test.context(), c, group.group());
    if (rank.rank == 1) result = log;
  });
  return result;
}

/// The wait for it stands behind the matmuls that hide it.
TEST(ParallelLinear, CommunicationIsUnderWayBeforeTheProductThatHidesIt) {
  const std::string weight = "multiply 8 ";  // one product over all rows of x, whatever the parts
  EXPECT_EQ(log_of(kGatherInput, {}, 2),
            "all_gather wait multiply 16 "
            "all_gather multiply 16 reduce_scatter wait multiply 4 wait ")
      << "as without parts: W hides the scatter, dx the gather for W";
  EXPECT_EQ(log_of(kGatherInput, {.num_gather_splits = 2}, 2),
            "all_gather all_gather multiply 8 wait multiply 4 wait multiply 4 "
            "all_gather multiply 16 reduce_scatter wait multiply 4 wait ");
  EXPECT_EQ(log_of(kGatherInput, {.num_dgrad_splits = 2}, 2),
            "all_gather wait multiply 16 "
            "all_gather multiply 4 multiply 4 reduce_scatter multiply 4 multiply 4 reduce_scatter "
            "wait multiply 4 wait wait ");
  EXPECT_EQ(log_of(kScatterOutput, {.num_gather_splits = 2, .num_scatter_splits = 2}, 2),
            "multiply 4 multiply 4 reduce_scatter multiply 4 multiply 4 reduce_scatter wait wait "
            "all_gather all_gather multiply 8 wait multiply 4 wait multiply 4 " +
                weight);
  EXPECT_EQ(log_of(kScatterOutput, {.num_gather_splits = 1}, 4),
            "multiply 32 reduce_scatter wait "
            "all_gather multiply 8 wait multiply 8 multiply 16 " +
                weight)
      << "one part: ranks beside each other share a product";
}

/// Backward of rank 1 of 2 through two pairs of a column cut and a row cut, with W behind B.
RankLog log_of_two_pairs(const TensorCommOverlap& overlap) {
  RankLog result;
  run_ranks(2, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    RankLog log;
    LoggedProducts products(log);
    LoggedGroup group(rank.group, rank.world.recorder(), log);
    test.device.profiler = &products;
    Context ctx = test.context();
    Tape tape(test.device);
    ctx.tape = &tape;
    ctx.mode = GradMode::kRecord;
    Tensor x = ctx.empty("x", {4, kBatch, 12}, DType::kFloat64);
    fill_uniform(ctx, x, "x");
    tape.watch(x);
    std::vector<std::unique_ptr<Parameter>> weights;
    Tensor y = x;
    for (const auto communication : {kGatherInput, kScatterOutput, kGatherInput, kScatterOutput}) {
      const bool is_column = communication == kGatherInput;
      weights.push_back(make_parameter(ctx, "w", is_column ? Shape{8, 12} : Shape{12, 8}, is_column ? 0 : 1, rank.group,
                                       DType::kFloat64, true));
      y = linear_with_communication(ctx, y, *weights.back(), nullptr, group.group(),
                                    {.kind = communication, .overlap = overlap});
    }
    log.clear();
    tape.seed(ctx, y.slot, y.detach());
    tape.backward(ctx, Phase::kB, 0);
    log += "B ends ";
    tape.backward_weight(ctx, 0);
    EXPECT_TRUE(tape.is_done());
    if (rank.rank == 1) result = log;
  });
  return result;
}

/// W of the cut before it ("multiply 12" of a row cut, "multiply 4" of a column cut) stands between a gather or a
/// scatter and where it is waited for.
TEST(ParallelLinear, DelayedWeightGradientsHideTheNextCommunication) {
  EXPECT_EQ(log_of_two_pairs({.num_gather_splits = 1, .delays_weight_gradient = true}),
            "all_gather multiply 8 wait multiply 8 "
            "multiply 16 reduce_scatter all_gather multiply 12 wait "
            "all_gather multiply 8 wait multiply 4 wait multiply 8 "
            "multiply 16 reduce_scatter all_gather multiply 12 wait "
            "B ends wait multiply 4 ");
  EXPECT_EQ(log_of_two_pairs({.delays_weight_gradient = true}),
            "all_gather wait multiply 16 "
            "multiply 16 reduce_scatter all_gather multiply 12 wait "
            "all_gather wait multiply 4 wait multiply 16 "
            "multiply 16 reduce_scatter all_gather multiply 12 wait "
            "B ends wait multiply 4 ")
      << "without parts";
}

TEST(ParallelLinear, RejectsABiasThatWouldBeAddedOnEveryRank) {
  EXPECT_THROW(expect_parts_of_one_rank({kReduceOutput, Phase::kBW, true, false}), RankFailure);
}

}  // namespace
}  // namespace megatron::testing
