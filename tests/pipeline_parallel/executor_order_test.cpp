// The executor with schedules, stages, borders and losses, also if they do not fit each other.
#include <gtest/gtest.h>

#include "megatron/ops/masked_sum.h"
#include "megatron/pipeline_parallel/executor.h"
#include "tests/testing/linear_chain.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/tolerance.h"

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

TEST(ExecutorOrder, WMayHaveNoWork) {
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

TEST(ExecutorOrder, RejectsActionsThatDoNotContinueTheEarlierOnes) {
  const Action forward{.kind = kF}, first_half{.kind = kF, .end_segment = 1};
  for (const Schedule& wrong :
       {Schedule{{.kind = kW}}, Schedule{forward, forward, {.kind = kBW}},
        Schedule{{.kind = kF, .first_segment = 1}, {.kind = kBW}}, Schedule{first_half, {.kind = kBW}},
        Schedule{first_half, first_half}, Schedule{forward, {.kind = kBW, .end_segment = 2}},
        Schedule{forward, {.kind = kBW, .first_segment = 2}, {.kind = kBW}},
        Schedule{forward, {.kind = kBW}, {.kind = kBW}}, Schedule{{.kind = kF, .chunk = 1}}})
    EXPECT_THROW(run(wrong), InternalError) << to_string(wrong);
}

/// Gradient of the input of two layers whose last stage gives two losses, of which `losses` are named.
std::vector<double> run_two_losses(const std::vector<std::string>& losses) {
  LinearChain chain(2);
  const auto summed = [](Context& ctx, const Tensor& x, float first_weight) {
    Tensor mask = ctx.empty("mask", {2, 3}, DType::kFloat32);
    launch(ctx, [&](auto&) {
      for (int i = 0; i < 6; ++i) mask.data<float>()[i] = first_weight + static_cast<float>(i);
    });
    return masked_sum(ctx, x.reshape({2, 3}), mask);
  };
  const Segment both{"losses", {}, [&](Context& ctx, const Payload& in, int) {
                       const Tensor& x = at(in, "x");
                       return Payload{{"seen", x}, {"late", summed(ctx, x, 2)}, {"early", summed(ctx, x, -3)}};
                     }};
  const ExecutorOptions options{.chunks = {{layer(chain, 0), layer(chain, 1), both}}, .losses = losses};
  Executor executor(chain.test.context(), options);
  executor.input = [&](int) { return Payload{{"x", chain.tensor("x")}}; };
  executor.run({{.kind = kF}, {.kind = kBW}});
  return values_of(at(executor.input_gradients.at(0), "x"));
}

TEST(ExecutorOrder, TheGradientOfSeveralNamedLossesIsThatOfTheirSum) {
  const std::vector<double> early = run_two_losses({"early"}), late = run_two_losses({"late"});
  const std::vector<double> both = run_two_losses({"early", "late"});
  ASSERT_EQ(both.size(), 6);
  for (size_t i = 0; i < both.size(); ++i) {
    EXPECT_NE(early[i], 0);
    EXPECT_NE(late[i], 0);
    const double size = std::abs(early[i]) + std::abs(late[i]);
    EXPECT_NEAR(both[i], early[i] + late[i], tolerance(DType::kFloat64, 2 * LinearChain::kSize, size)) << i;
  }
  EXPECT_THROW(run_two_losses({"early", "absent"}), InternalError);
}

TEST(ExecutorOrder, EveryBorderMayHaveAPayloadOfItsOwn) {
  std::vector<double> gradient;
  run_ranks(3, [&](RankContext& rank) {
    LinearChain chain(3);
    const Segment renamed{"renamed", {}, [](Context&, const Payload& in, int) {
                            return Payload{{"wide", at(in, "x").reshape({1, 2, 3})}};
                          }};
    const Segment named_back{"named back", {}, [](Context&, const Payload& in, int) {
                               return Payload{{"x", at(in, "wide").reshape({2, 1, 3})}};
                             }};
    const std::vector<Chunk> stages = {
        {layer(chain, 0)}, {layer(chain, 1), renamed}, {named_back, layer(chain, 2), loss()}};
    const ExecutorOptions options{.chunks = {stages[static_cast<size_t>(rank.rank)]},
                                  .border_payload =
                                      [](int stage, int) {
                                        const PayloadSpec x{"x", {2, 1, 3}, DType::kFloat64};
                                        const PayloadSpec wide{"wide", {1, 2, 3}, DType::kFloat64};
                                        return std::vector<PayloadSpec>{stage == 0 ? x : wide};
                                      },
                                  .pipeline_group = &rank.group};
    Executor executor(chain.test.context(), options);
    executor.input = [&](int) { return Payload{{"x", chain.tensor("x")}}; };
    Schedule schedule{{.kind = kF}, {.kind = kBW}};
    if (rank.rank < 2) schedule.insert(schedule.begin() + 1, {{.kind = kSendForward}, {.kind = kRecvBackward}});
    if (rank.rank > 0) {
      schedule.insert(schedule.begin(), {.kind = kRecvForward});
      schedule.push_back({.kind = kSendBackward});
    }
    executor.run(schedule);
    if (rank.rank == 0) gradient = values_of(at(executor.input_gradients.at(0), "x"));
  });
  LinearChain whole(3);
  const ExecutorOptions options{.chunks = {{layer(whole, 0), layer(whole, 1), layer(whole, 2), loss()}}};
  Executor executor(whole.test.context(), options);
  executor.input = [&](int) { return Payload{{"x", whole.tensor("x")}}; };
  executor.run({{.kind = kF}, {.kind = kBW}});
  EXPECT_EQ(gradient, values_of(at(executor.input_gradients.at(0), "x")));
}

/// One layer on rank 0, the rest on rank 1.
void run_two_stages(const std::vector<PayloadSpec>& border) {
  run_ranks(2, [&](RankContext& rank) {
    LinearChain chain(2);
    const ExecutorOptions options{.chunks = {rank.rank == 0 ? Chunk{layer(chain, 0)} : Chunk{layer(chain, 1), loss()}},
                                  .border_payload = same_on_all_borders(border),
                                  .pipeline_group = &rank.group};
    Executor executor(chain.test.context(), options);
    executor.input = [&](int) { return Payload{{"x", chain.tensor("x")}}; };
    executor.run(rank.rank == 0
                     ? Schedule{{.kind = kF}, {.kind = kSendForward}, {.kind = kRecvBackward}, {.kind = kBW}}
                     : Schedule{{.kind = kRecvForward}, {.kind = kF}, {.kind = kBW}, {.kind = kSendBackward}});
  });
}

TEST(ExecutorOrder, RejectsAnOutputThatDiffersFromTheNamesOfTheBorder) {
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
                                 .border_payload = same_on_all_borders({{"x", {4}, DType::kFloat32}}),
                                 .losses = {},
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
