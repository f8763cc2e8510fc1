#include "megatron/autograd/recompute.h"

#include <gtest/gtest.h>

#include "megatron/ops/add.h"
#include "megatron/ops/bias_dropout_add.h"
#include "tests/testing/linear_chain.h"

namespace megatron::testing {
namespace {

using ChainFunction = std::function<Payload(LinearChain&, Context&, const Payload&)>;

struct Gradients {
  std::vector<std::vector<double>> values;
  bool operator==(const Gradients&) const = default;
};

/// Gradients of x and all weights; `wrap` runs the function, recomputed or not.
Gradients run(int num_layers, Phase phase, const std::function<Payload(LinearChain&, Context&, const Payload&)>& wrap) {
  LinearChain chain(num_layers);
  const Tensor x = chain.watched("x");
  const Payload out = wrap(chain, chain.ctx, {{"x", x}});
  for (const NamedTensor& item : out) chain.tape.seed(chain.ctx, item.tensor.slot, chain.tensor(item.name));
  chain.tape.backward(chain.ctx, phase, 0);
  if (phase == Phase::kB) chain.tape.backward_weight(chain.ctx, 0);
  Gradients result{{values_of(chain.tape.take_gradient(x.slot))}};
  for (size_t i = 0; i < chain.weights.size(); ++i) {
    EXPECT_TRUE(chain.weights[i]->is_ready()) << i;
    chain.weights[i]->finish(chain.ctx);
    result.values.push_back(chain.gradient(i));
  }
  return result;
}

Payload recomputed(LinearChain& chain, Context& ctx, const Payload& in, const ChainFunction& function) {
  return recompute(ctx, in, [&chain, function](Context& c, const Payload& p) { return function(chain, c, p); });
}

void expect_same_bits(int num_layers, const ChainFunction& function) {
  const Gradients plain = run(num_layers, Phase::kBW, function);
  for (const Phase phase : {Phase::kB, Phase::kBW})
    EXPECT_EQ(plain, run(num_layers, phase, [&](LinearChain& chain, Context& ctx, const Payload& in) {
                return recomputed(chain, ctx, in, function);
              }));
}

TEST(Recompute, GivesTheBitsOfThePlainRunForAWeightUsedTwice) {
  expect_same_bits(2, [](LinearChain& chain, Context& ctx, const Payload& in) {
    const Tensor h = chain.layer(ctx, chain.layer(ctx, at(in, "x"), 0), 1);
    return Payload{{"a", chain.layer(ctx, h, 0)}, {"b", h}};
  });
}

TEST(Recompute, NestsAndCountsEachUseOnce) {
  const ChainFunction inner = [](LinearChain& chain, Context& ctx, const Payload& in) {
    return Payload{{"y", chain.layer(ctx, chain.layer(ctx, at(in, "x"), 1), 0)}};
  };
  const auto outer = [&](bool nests) {
    return [&inner, nests](LinearChain& chain, Context& ctx, const Payload& in) {
      const Tensor h = chain.layer(ctx, at(in, "x"), 0);
      const Payload once = nests ? recomputed(chain, ctx, {{"x", h}}, inner) : inner(chain, ctx, {{"x", h}});
      return Payload{{"y", add(ctx, at(once, "y"), h)}};
    };
  };
  const Gradients plain = run(2, Phase::kBW, outer(false));
  for (const Phase phase : {Phase::kB, Phase::kBW})
    EXPECT_EQ(plain, run(2, phase, [&](LinearChain& chain, Context& ctx, const Payload& in) {
                return recomputed(chain, ctx, in, outer(true));
              }));
}

TEST(Recompute, DrawsWithTheKeyOfTheFirstRun) {
  // The caller's key is that of a layer; backward is called with the key of the model.
  const auto with_key = [](bool recomputes) {
    return [recomputes](LinearChain& chain, Context& ctx, const Payload& in) {
      const ChainFunction function = [](LinearChain& c, Context& own, const Payload& p) {
        const Tensor dropped =
            dropout(own, at(p, "x"), {.rate = 0.5, .path = "drop", .rows = {.sequence_length = 2, .b = 1}});
        return Payload{{"y", c.layer(own, dropped, 0)}};
      };
      Context layer = ctx;
      layer.key = ctx.key.at("layer 3");
      return recomputes ? recomputed(chain, layer, in, function) : function(chain, layer, in);
    };
  };
  EXPECT_EQ(run(1, Phase::kBW, with_key(false)), run(1, Phase::kBW, with_key(true)));
}

TEST(Recompute, WithoutAGradientCountsDown) {
  LinearChain chain(2);
  const Tensor x = chain.watched("x");
  recompute(chain.ctx, {{"x", x}}, [&](Context& c, const Payload& in) {
    return Payload{{"y", chain.layer(c, at(in, "x"), 1)}};
  });
  const Tensor y = chain.layer(chain.ctx, x, 0);
  chain.tape.seed(chain.ctx, y.slot, chain.tensor("dy"));
  chain.tape.backward(chain.ctx, Phase::kBW, 0);
  EXPECT_TRUE(chain.weights[1]->is_ready());
  EXPECT_EQ(chain.gradient(1), std::vector<double>(9, 0.0));
}

TEST(Recompute, RejectsARecordedTensorThatIsCaptured) {
  LinearChain chain(1);
  const Tensor x = chain.watched("x"), captured = chain.watched("captured");
  const Payload out = recompute(chain.ctx, {{"x", x}}, [&](Context& c, const Payload& in) {
    return Payload{{"y", add(c, at(in, "x"), captured)}};
  });
  chain.tape.seed(chain.ctx, at(out, "y").slot, chain.tensor("dy"));
  EXPECT_THROW(chain.tape.backward(chain.ctx, Phase::kBW, 0), InternalError);
}

TEST(Recompute, IsThePlainFunctionInEvaluation) {
  LinearChain chain(1);
  chain.ctx.mode = GradMode::kOff;
  int num_runs = 0;
  recompute(chain.ctx, {{"x", chain.tensor("x")}}, [&](Context&, const Payload& in) {
    ++num_runs;
    return in;
  });
  EXPECT_EQ(num_runs, 1);
  EXPECT_TRUE(chain.tape.is_done());
}

/// Two layers, of which the second saves the output of the first.
Payload two_layers(LinearChain& chain, Context& ctx, const Payload& in, bool again) {
  const Tensor& x = at(in, "x");
  const Tensor h = chain.layer(ctx, x, 0);
  if (again)
    recompute_when_saved(ctx, h, x, [&chain](Context& c, const Tensor& input) { return chain.layer(c, input, 0); });
  return {{"y", chain.layer(ctx, h, 1)}};
}

TEST(RecomputeWhenSaved, ChangesNoBit) {
  const auto function = [](bool again) {
    return [again](LinearChain& chain, Context& ctx, const Payload& in) { return two_layers(chain, ctx, in, again); };
  };
  const Gradients plain = run(2, Phase::kBW, function(false));
  for (const Phase phase : {Phase::kB, Phase::kBW}) {
    EXPECT_EQ(plain, run(2, phase, function(true)));
    EXPECT_EQ(plain, run(2, phase, [&](LinearChain& chain, Context& ctx, const Payload& in) {
                return recomputed(chain, ctx, in, function(true));
              }));
  }
}

TEST(RecomputeWhenSaved, FreesTheValueUntilBackward) {
  const auto live_bytes = [](bool again) {
    LinearChain chain(2);
    const Tensor x = chain.watched("x");
    const Payload out = two_layers(chain, chain.ctx, {{"x", x}}, again);
    return chain.ctx.device.arena.total().live;
  };
  LinearChain chain(2);
  const int64_t bytes = chain.layer(chain.ctx, chain.watched("x"), 0).bytes();
  EXPECT_LE(live_bytes(true), live_bytes(false) - bytes);
}

}  // namespace
}  // namespace megatron::testing
