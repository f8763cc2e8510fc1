// A toy of routing: the decision of a second run would differ, as it follows a state that forward changes.
#include "megatron/autograd/recompute_run.h"

#include <gtest/gtest.h>

#include "megatron/autograd/recompute.h"
#include "megatron/ops/add.h"
#include "tests/testing/linear_chain.h"

namespace megatron::testing {
namespace {

/// State that routing keeps from step to step: a bias that turns each decision around, and the routed tokens.
struct Router {
  int64_t num_decisions = 0;
  int64_t num_routed = 0;
  std::vector<std::vector<int64_t>> decisions;  // of each run, in order
};

/// y = x * (1 + decision of its row).
struct ScaleNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor choice = decision.get(b.ctx);
    grad_in[0] = scaled(b.ctx, grad_out[0], choice);
    decision.drop();
  }
  static Tensor scaled(const Context& ctx, const Tensor& x, const Tensor& choice) {
    Tensor y = ctx.empty_like("scaled", x);
    launch(ctx, [&](auto&) {
      for (int64_t i = 0; i < x.num_elements(); ++i)
        y.data<double>()[i] = x.data<double>()[i] * static_cast<double>(1 + choice.data<int64_t>()[i / x.size(2)]);
    });
    return y;
  }
  SavedTensor decision;
};

Tensor route(Context& ctx, const Tensor& x, Router& router) {
  const Tensor decision = compute_once(ctx, [&] {
    Tensor choice = ctx.empty("choice", {x.size(0)}, DType::kInt64);
    launch(ctx, [&](auto&) {
      for (int64_t i = 0; i < x.size(0); ++i) choice.data<int64_t>()[i] = (router.num_decisions + i) % 2;
    });
    ++router.num_decisions;
    return choice;
  });
  if (ctx.is_first_run()) router.num_routed += x.size(0);
  router.decisions.emplace_back(decision.data<int64_t>(), decision.data<int64_t>() + x.size(0));
  Tensor y = ScaleNode::scaled(ctx, x, decision);
  record(ctx, {}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<ScaleNode>();
    node->decision = SavedTensor(ctx, decision);
    return node;
  });
  return y;
}

struct Result {
  std::vector<std::vector<double>> gradients;  // of x and the weights
  Router router;
  int64_t live_bytes_after = 0, live_bytes_before = 0;
};

using Function = std::function<Tensor(LinearChain&, Router&, Context&, const Tensor&)>;

/// Forward and backward of `function`; after forward the router's state has moved on.
Result run(Phase phase, SavePolicy save, const Function& function) {
  Result result;
  LinearChain chain(2);
  chain.ctx.save = save;
  const Tensor x = chain.watched("x");
  result.live_bytes_before = chain.ctx.device.arena.total().live;
  {
    const Tensor y = function(chain, result.router, chain.ctx, x);
    chain.tape.seed(chain.ctx, y.slot, chain.tensor("dy"));
  }
  chain.tape.backward(chain.ctx, phase, 0);
  if (phase == Phase::kB) chain.tape.backward_weight(chain.ctx, 0);
  result.gradients.push_back(values_of(chain.tape.take_gradient(x.slot)));
  for (size_t i = 0; i < chain.weights.size(); ++i) {
    EXPECT_TRUE(chain.weights[i]->is_ready()) << i;
    chain.weights[i]->finish(chain.ctx);
    result.gradients.push_back(chain.gradient(i));
  }
  result.live_bytes_after = chain.ctx.device.arena.total().live;
  return result;
}

Tensor recomputed(LinearChain& chain, Router& router, Context& ctx, const Tensor& x, const Function& function) {
  const auto of_payload = [&chain, &router, function](Context& c, const Payload& in) {
    return Payload{{"y", function(chain, router, c, at(in, "x"))}};
  };
  return at(recompute(ctx, {{"x", x}}, of_payload), "y");
}

/// Two decisions, of which the second one depends on weights.
Tensor routed_layers(LinearChain& chain, Router& router, Context& ctx, const Tensor& x) {
  const Tensor first = chain.layer(ctx, route(ctx, x, router), 0);
  return chain.layer(ctx, route(ctx, first, router), 1);
}

TEST(ComputeOnce, GivesTheSecondRunTheDecisionsOfTheFirst) {
  const Result plain = run(Phase::kBW, SavePolicy::kKeep, routed_layers);
  ASSERT_EQ(plain.router.decisions, (std::vector<std::vector<int64_t>>{{0, 1}, {1, 0}}));
  for (const Phase phase : {Phase::kB, Phase::kBW})
    for (const SavePolicy save : {SavePolicy::kKeep, SavePolicy::kOffload}) {
      const Result twice = run(phase, save, [](LinearChain& chain, Router& router, Context& ctx, const Tensor& x) {
        return recomputed(chain, router, ctx, x, routed_layers);
      });
      EXPECT_EQ(twice.gradients, plain.gradients);
      EXPECT_EQ(twice.router.decisions, (std::vector<std::vector<int64_t>>{{0, 1}, {1, 0}, {0, 1}, {1, 0}}));
      EXPECT_EQ(twice.router.num_decisions, 2);
    }
}

TEST(ComputeOnce, CountersOfTheFirstRunCountOnce) {
  const Result plain = run(Phase::kBW, SavePolicy::kKeep, routed_layers);
  const Result twice = run(Phase::kBW, SavePolicy::kKeep, [](auto& chain, auto& router, Context& ctx, const Tensor& x) {
    return recomputed(chain, router, ctx, x, routed_layers);
  });
  EXPECT_EQ(plain.router.num_routed, 4);
  EXPECT_EQ(twice.router.num_routed, 4);
}

TEST(ComputeOnce, ReachesEveryRunOfNestedFunctions) {
  const auto outer = [](const Function& inner) -> Function {
    return [inner](LinearChain& chain, Router& router, Context& ctx, const Tensor& x) {
      const Tensor before = route(ctx, x, router);
      return route(ctx, add(ctx, inner(chain, router, ctx, before), x), router);
    };
  };
  const Function nested = [](LinearChain& chain, Router& router, Context& ctx, const Tensor& x) {
    return recomputed(chain, router, ctx, x, routed_layers);
  };
  const Result plain = run(Phase::kBW, SavePolicy::kKeep, outer(routed_layers));
  for (const Phase phase : {Phase::kB, Phase::kBW}) {
    const Result twice = run(phase, SavePolicy::kKeep, [&](auto& chain, auto& router, Context& ctx, const Tensor& x) {
      return recomputed(chain, router, ctx, x, outer(nested));
    });
    EXPECT_EQ(twice.gradients, plain.gradients);
    EXPECT_EQ(twice.router.num_decisions, 4);
    EXPECT_EQ(twice.router.num_routed, 8);
  }
}

TEST(ComputeOnce, FreesItsValuesWhenBackwardHasRun) {
  const Result twice = run(Phase::kBW, SavePolicy::kKeep, [](auto& chain, auto& router, Context& ctx, const Tensor& x) {
    return recomputed(chain, router, ctx, x, routed_layers);
  });
  EXPECT_EQ(twice.live_bytes_after, twice.live_bytes_before);
}

TEST(ComputeOnce, RejectsRunsThatAskForDifferentNumbersOfValues) {
  for (const int64_t num_first : {1, 3}) {
    int num_runs = 0;
    const Function uneven = [&](LinearChain& chain, Router& router, Context& ctx, const Tensor& x) {
      const int64_t times = num_runs++ == 0 ? num_first : 2;
      Tensor y = x;
      for (int64_t i = 0; i < times; ++i) y = route(ctx, y, router);
      return chain.layer(ctx, y, 0);
    };
    EXPECT_THROW(run(Phase::kBW, SavePolicy::kKeep,
                     [&](auto& chain, auto& router, Context& ctx, const Tensor& x) {
                       return recomputed(chain, router, ctx, x, uneven);
                     }),
                 InternalError)
        << num_first;
  }
}

TEST(ComputeOnce, RejectsAValueWhoseGradientWouldBeLost) {
  EXPECT_THROW(run(Phase::kBW, SavePolicy::kKeep,
                   [](LinearChain& chain, Router&, Context& ctx, const Tensor& x) {
                     return compute_once(ctx, [&] { return chain.layer(ctx, x, 0); });
                   }),
               InternalError);
}

TEST(ComputeOnce, IsRejectedWhereTheFirstRunKeepsNothing) {
  EXPECT_THROW(run(Phase::kBW, SavePolicy::kKeep,
                   [](LinearChain& chain, Router& router, Context& ctx, const Tensor& x) {
                     const Tensor h = route(ctx, x, router);
                     recompute_when_saved(ctx, h, x,
                                          [&](Context& c, const Tensor& in) { return route(c, in, router); });
                     return chain.layer(ctx, h, 0);
                   }),
               InternalError);
}

TEST(ComputeOnce, ComputesInEvaluation) {
  LinearChain chain(2);
  chain.ctx.mode = GradMode::kOff;
  Router router;
  routed_layers(chain, router, chain.ctx, chain.tensor("x"));
  EXPECT_EQ(router.num_decisions, 2);
}

}  // namespace
}  // namespace megatron::testing
