// What the executor does with schedules, stages and borders that do not fit each other.
#include <gtest/gtest.h>

#include "megatron/ops/masked_sum.h"
#include "megatron/pipeline_parallel/executor.h"
#include "tests/testing/linear_chain.h"
#include "tests/testing/rank_threads.h"

namespace megatron::testing {
namespace {

using enum ActionKind;

Segment layer(LinearChain& chain, size_t index) {
  return {"layer", {chain.weights[index].get()}, [&chain, index](Context& ctx, const Payload& in, int) {
            return Payload{{"x", chain.layer(ctx, at(in, "x"), index)}};
          }};
}

Segment loss() {
  return {"loss", {}, [](Context& ctx, const Payload& in, int) {
            Tensor mask = ctx.empty("mask", {2, 3}, DType::kFloat32);
            launch(ctx, [&](auto&) { std::fill_n(mask.data<float>(), 6, 1.0F); });
            return Payload{{"loss", masked_sum(ctx, at(in, "x").reshape({2, 3}), mask)}};
          }};
}

/// Two layers and a loss on one rank. @return the gradient of the input.
std::vector<double> run(const Schedule& schedule, bool is_trainable = true) {
  LinearChain chain(2, is_trainable);
  const ExecutorOptions options{.chunks = {{layer(chain, 0), layer(chain, 1), loss()}}};
  Executor executor(chain.test.context(), options);
  executor.input = [&](int) { return Payload{{"x", chain.tensor("x")}}; };
  executor.run(schedule);
  return values_of(at(executor.input_gradients.at(0), "x"));
}

TEST(ExecutorOrder, WMayFindNothingToDo) {
  const auto fused = run({{.kind = kF}, {.kind = kBW}}, false);
  EXPECT_EQ(run({{.kind = kF}, {.kind = kB}, {.kind = kW}}, false), fused) << "all weights are frozen";
  EXPECT_EQ(run({{.kind = kF},
                 {.kind = kB},
                 {.kind = kW, .first_segment = 2},
                 {.kind = kW, .first_segment = 1},
                 {.kind = kW},
                 {.kind = kW}}),
            run({{.kind = kF}, {.kind = kBW}}));
}

TEST(ExecutorOrder, RefusesActionsThatDoNotGoOnWhereTheOnesBeforeEnded) {
  const Action forward{.kind = kF}, first_half{.kind = kF, .end_segment = 1};
  for (const Schedule& wrong :
       {Schedule{{.kind = kW}}, Schedule{forward, forward, {.kind = kBW}},
        Schedule{{.kind = kF, .first_segment = 1}, {.kind = kBW}}, Schedule{first_half, {.kind = kBW}},
        Schedule{first_half, first_half}, Schedule{forward, {.kind = kBW, .end_segment = 2}},
        Schedule{forward, {.kind = kBW, .first_segment = 2}, {.kind = kBW}},
        Schedule{forward, {.kind = kBW}, {.kind = kBW}}, Schedule{{.kind = kF, .chunk = 1}}})
    EXPECT_THROW(run(wrong), InternalError) << to_string(wrong);
}

/// One layer on rank 0, the rest on rank 1.
void run_two_stages(const std::vector<PayloadSpec>& border) {
  run_ranks(2, [&](RankContext& rank) {
    LinearChain chain(2);
    const ExecutorOptions options{.chunks = {rank.rank == 0 ? Chunk{layer(chain, 0)} : Chunk{layer(chain, 1), loss()}},
                                  .border_payload = border,
                                  .pipeline_group = &rank.group};
    Executor executor(chain.test.context(), options);
    executor.input = [&](int) { return Payload{{"x", chain.tensor("x")}}; };
    executor.run(rank.rank == 0
                     ? Schedule{{.kind = kF}, {.kind = kSendForward}, {.kind = kRecvBackward}, {.kind = kBW}}
                     : Schedule{{.kind = kRecvForward}, {.kind = kF}, {.kind = kBW}, {.kind = kSendBackward}});
  });
}

TEST(ExecutorOrder, RefusesAnOutputThatIsNotWhatTheBorderNames) {
  const PayloadSpec right{"x", {2, 1, 3}, DType::kFloat64};
  run_two_stages({right});
  for (const std::vector<PayloadSpec>& wrong : {std::vector<PayloadSpec>{right, right},
                                                {{"y", {2, 1, 3}, DType::kFloat64}},
                                                {{"x", {1, 2, 3}, DType::kFloat64}},
                                                {{"x", {2, 1, 3}, DType::kFloat32}}}) {
    try {
      run_two_stages(wrong);
      FAIL() << "nothing was thrown";
    } catch (const RankFailure& failure) {
      EXPECT_EQ(failure.rank, 0);
      EXPECT_THROW(std::rethrow_exception(failure.cause), InternalError) << failure.what();
    }
  }
}

TEST(ExecutorOrder, ARankThatFailsInTheMiddleOfAStepEndsTheOthersAndLeavesNoMemory) {
  std::vector<int64_t> live(2, -1);
  EXPECT_THROW(run_ranks(2,
                         [&](RankContext& rank) {
                           TestDevice test(DeviceKind::kCpu, 1);
                           const Context ctx = test.context();
                           try {
                             const ExecutorOptions options{
                                 .chunks = {{{"stage",
                                              {},
                                              [&](Context& c, const Payload& in, int m) {
                                                if (rank.rank == 1 && m == 1) throw DataError("a bad sample");
                                                const Tensor x =
                                                    rank.rank == 1 ? at(in, "x") : c.empty("x", {4}, DType::kFloat32);
                                                return Payload{{"x", x}};
                                              }}}},
                                 .border_payload = {{"x", {4}, DType::kFloat32}},
                                 .pipeline_group = &rank.group};
                             Executor executor(ctx, options);
                             Schedule schedule;
                             for (int m = 0; m < 3; ++m) {
                               if (rank.rank == 1) schedule.push_back({.kind = kRecvForward, .micro_batch = m});
                               schedule.push_back({.kind = kF, .micro_batch = m});
                               if (rank.rank == 0) schedule.push_back({.kind = kSendForward, .micro_batch = m});
                             }
                             if (rank.rank == 0) schedule.push_back({.kind = kRecvBackward});
                             executor.run(schedule);
                           } catch (...) {
                             live[static_cast<size_t>(rank.rank)] = test.device.arena.total().live;
                             throw;
                           }
                         }),
               RankFailure);
  EXPECT_EQ(live, (std::vector<int64_t>{0, 0}));
}

}  // namespace
}  // namespace megatron::testing
