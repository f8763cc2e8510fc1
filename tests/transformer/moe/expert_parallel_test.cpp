// A mixture of experts on several ranks gives what one rank gives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "megatron/distributed/finalize_model_grads.h"
#include "megatron/distributed/replica_groups.h"
#include "tests/testing/tolerance.h"
#include "tests/transformer/moe/expert_parallel_layer.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

constexpr double kExpertBound = 1e-11;

const Variant kVariants[] = {
    {"dropless", Unit::kAll, [](MoeConfig&, TransformerConfig&) {}},
    {"biases", Unit::kAll, [](MoeConfig&, TransformerConfig& c) { c.add_bias_linear = true; }, true},
    {"gated", Unit::kAll,
     [](MoeConfig&, TransformerConfig& c) { c.gated_linear_unit = true, c.activation_func = ActivationFunc::kSilu; }},
    {"sequential", Unit::kAll,
     [](MoeConfig& m, TransformerConfig& c) { m.grouped_gemm = false, c.gated_linear_unit = true; }},
    {"dropped", Unit::kRank, [](MoeConfig& m, TransformerConfig&) { m.expert_capacity_factor = 0.7; }},
    {"padded to capacity", Unit::kRank,
     [](MoeConfig& m, TransformerConfig&) { m.expert_capacity_factor = 1.2, m.pad_expert_input_to_capacity = true; }},
    {"padded to a multiple", Unit::kRank,
     [](MoeConfig& m, TransformerConfig& c) { m.pad_expert_input_to_multiple = 4, c.add_bias_linear = true; }, true},
    {"one expert each, probabilities on the input", Unit::kAll,
     [](MoeConfig& m, TransformerConfig&) {
       m.topk = {.topk = 1, .pre_softmax = true}, m.apply_probs_on_input = true;
     }},
    {"every expert", Unit::kAll, [](MoeConfig& m, TransformerConfig&) { m.topk.topk = 8; }},
    {"shared experts", Unit::kAll,
     [](MoeConfig& m, TransformerConfig&) { m.shared_expert_intermediate_size = 6, m.shared_expert_gate = true; }},
    {"latent experts", Unit::kAll, [](MoeConfig& m, TransformerConfig&) { m.latent_size = 3; }},
    {"losses of sequences", Unit::kSequences,
     [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kAuxLoss, 0.3}, {LoadBalancingType::kSeqAuxLoss, 0.1}};
       m.z_loss_coeff = 0.1;
     }},
    {"losses of sequences for every token", Unit::kSequences,
     [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kSeqAuxLoss, 0.1}};
       m.z_loss_coeff = 0.1;
       m.calculate_per_token_loss = true;
     }},
    {"global loss", Unit::kAll,
     [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kGlobalAuxLoss, 0.3}};
     }},
    {"expert bias", Unit::kAll,
     [](MoeConfig& m, TransformerConfig&) {
       m.topk.score = kernels::RouterScore::kSigmoid, m.enable_expert_bias = true;
     }},
    {"quantile balancing", Unit::kSequences, [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kQuantileBalancing, 0}};
     }}};

/// The results of one rank for the units of tokens of a layout: values by global place, gradients and losses summed.
struct Reference {
  std::vector<double> output, dx, expert_bias, quantile_beta;
  std::vector<double> losses;  // means over the units
  std::map<std::string, std::vector<double>> gradients;
};

Reference reference_of(const Variant& variant, const Layout& layout) {
  Reference result;
  const size_t size = kPositions * kColumns * kFeatures;
  result.output.resize(size);
  result.dx.resize(size);
  const int64_t dp = layout.world / layout.tp;
  const int64_t column_runs = variant.unit == Unit::kAll ? 1 : dp;
  const int64_t position_runs = variant.unit == Unit::kRank ? layout.tp : 1;
  Layer quantiles(variant, ProcessGroupCollection::single(), layout.dispatcher);  // sums over all units
  quantiles.begins_step = false;
  for (int64_t c = 0; c < column_runs; ++c)
    for (int64_t p = 0; p < position_runs; ++p) {
      Layer layer(variant, ProcessGroupCollection::single(), layout.dispatcher);
      const Tokens tokens{.first_position = p * kPositions / position_runs,
                          .positions = kPositions / position_runs,
                          .first_column = c * kColumns / column_runs,
                          .columns = kColumns / column_runs};
      layer.run(tokens);
      const size_t row = static_cast<size_t>(tokens.columns * kFeatures);
      for (int64_t s = 0; s < tokens.positions; ++s) {
        const int64_t to = ((tokens.first_position + s) * kColumns + tokens.first_column) * kFeatures;
        const auto from = static_cast<std::ptrdiff_t>(static_cast<size_t>(s) * row);
        std::copy_n(layer.output.begin() + from, row, result.output.begin() + to);
        std::copy_n(layer.dx.begin() + from, row, result.dx.begin() + to);
      }
      for (Parameter* parameter : layer.weights()) {
        std::vector<double>& sum = result.gradients[parameter->name()];
        const std::vector<double> values = values_of(parameter->main_grad());
        sum.resize(values.size());
        for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i];
      }
      result.losses.resize(layer.losses.size());
      for (size_t i = 0; i < layer.losses.size(); ++i)
        result.losses[i] += layer.losses[i] / static_cast<double>(column_runs * position_runs);
      quantiles.run(tokens);
    }
  quantiles.layer->router().finish_step(quantiles.ctx);
  if (quantiles.moe.enable_expert_bias)
    result.expert_bias = values_of(quantiles.layer->router().expert_bias()->value());
  if (const Parameter* beta = quantiles.layer->router().quantile_beta())
    result.quantile_beta = values_of(beta->value());
  return result;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0, scale = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::isnan(a[i]) ? HUGE_VAL : std::max(largest, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return largest / scale;
}

std::vector<double> part_of_rank(const std::vector<double>& whole, const Tokens& tokens) {
  std::vector<double> part;
  for (int64_t s = 0; s < tokens.positions; ++s) {
    const auto from = whole.begin() + ((tokens.first_position + s) * kColumns + tokens.first_column) * kFeatures;
    part.insert(part.end(), from, from + tokens.columns * kFeatures);
  }
  return part;
}

void expect_gradients(Layer& layer, const Reference& reference) {
  const std::vector<Parameter*> parameters = layer.weights();
  all_reduce_tensor_parallel_grads(layer.ctx, parameters, layer.groups.tp);
  for (Parameter* parameter : parameters) {
    replicas_of(*parameter, layer.groups).all.all_reduce(parameter->main_grad().view(), ReduceOp::kSum, {}).wait();
    const std::vector<double>& whole = reference.gradients.at(parameter->name());
    const std::vector<double> own = values_of(parameter->main_grad());
    std::vector<double> expected(own.size(), NAN);
    for_each_shard_element(*parameter, [&](int64_t global, int64_t local) {
      expected[static_cast<size_t>(local)] = whole[static_cast<size_t>(global)];
    });
    EXPECT_LT(difference(own, expected), kExpertBound) << parameter->name();
  }
}

void expect_losses(const Layer& layer, const Reference& reference) {
  ASSERT_EQ(layer.losses.size(), reference.losses.size());
  for (size_t i = 0; i < layer.losses.size(); ++i) {
    Tensor sum = layer.ctx.empty("loss", {1}, DType::kFloat64);
    *sum.data<double>() = layer.losses[i];
    layer.groups.tp_dp_cp.all_reduce(sum.view(), ReduceOp::kSum, {}).wait();
    EXPECT_NEAR(*sum.data<double>() / layer.groups.tp_dp_cp.size(), reference.losses[i], kExpertBound);
  }
}

void expect_equal_to_one_rank(const Layout& layout, const Variant& variant, bool recomputes = false) {
  const Reference reference = reference_of(variant, layout);
  run_ranks(layout.world, [&](RankContext& rank) {
    Layer layer(variant, groups_of(rank.world, layout), layout.dispatcher);
    const Tokens tokens = tokens_of(layer.groups);
    layer.run(tokens, recomputes);
    EXPECT_LT(difference(layer.output, part_of_rank(reference.output, tokens)), kExpertBound) << "output";
    EXPECT_LT(difference(layer.dx, part_of_rank(reference.dx, tokens)), kExpertBound) << "gradient of the input";
    EXPECT_EQ(layer.overflow, 0);
    expect_gradients(layer, reference);
    expect_losses(layer, reference);
    TopKRouter& router = layer.layer->router();
    router.finish_step(layer.ctx);
    if (layer.moe.enable_expert_bias) {
      EXPECT_EQ(values_of(router.expert_bias()->value()), reference.expert_bias);
    }
    if (const Parameter* beta = router.quantile_beta()) {
      EXPECT_LT(difference(values_of(beta->value()), reference.quantile_beta), 1e-6);  // of float32 sums
    }
  });
}

class ExpertParallel : public ::testing::TestWithParam<Layout> {};

TEST_P(ExpertParallel, EqualsOneRankInOutputGradientsAndLosses) {
  for (const Variant& variant : kVariants) {
    if (variant.has_bias && GetParam().etp > 1) continue;
    SCOPED_TRACE(variant.name);
    expect_equal_to_one_rank(GetParam(), variant);
  }
}

constexpr auto kAllToAll = TokenDispatcherType::kAllToAll;
INSTANTIATE_TEST_SUITE_P(Layouts, ExpertParallel,
                         ::testing::Values(Layout{1, 1, 1, 1}, Layout{2, 1, 1, 1}, Layout{2, 1, 2, 1},
                                           Layout{2, 1, 2, 1, kAllToAll}, Layout{2, 2, 1, 1}, Layout{2, 2, 1, 2},
                                           Layout{2, 2, 2, 1, kAllToAll}, Layout{2, 1, 1, 2, kAllToAll},
                                           Layout{4, 1, 4, 1}, Layout{4, 1, 4, 1, kAllToAll},
                                           Layout{4, 2, 2, 2, kAllToAll}, Layout{4, 2, 2, 1}, Layout{4, 2, 1, 2},
                                           Layout{4, 2, 4, 1}, Layout{4, 1, 2, 2}, Layout{4, 1, 2, 1, kAllToAll}));

TEST(ExpertParallelLayer, RecomputedEqualsOneRank) {
  for (const Variant& variant : kVariants) {
    if (variant.has_bias) continue;
    SCOPED_TRACE(variant.name);
    expect_equal_to_one_rank({4, 2, 2, 2, kAllToAll}, variant, /*recomputes=*/true);
  }
}

/// Router weights of 0 make all scores equal, so that every token goes to expert 0.
TEST(ExpertParallelLayer, IsDroplessWhereAllTokensGoToOneExpert) {
  const Variant variant{"one", Unit::kAll,
                        [](MoeConfig& m, TransformerConfig&) { m.topk = {.topk = 1, .pre_softmax = true}; }};
  const auto run = [](Layer& layer, const Tokens& tokens) {
    Tensor& router = layer.weights()[0]->value();
    std::fill_n(router.data<double>(), router.num_elements(), 0.0);
    layer.run(tokens);
  };
  Layer one(variant, ProcessGroupCollection::single(), kAllToAll);
  run(one, {});
  for (const Layout& layout : {Layout{4, 1, 4, 1}, Layout{4, 1, 4, 1, kAllToAll}, Layout{4, 2, 2, 2, kAllToAll}})
    run_ranks(layout.world, [&](RankContext& rank) {
      Layer layer(variant, groups_of(rank.world, layout), layout.dispatcher);
      const Tokens tokens = tokens_of(layer.groups);
      run(layer, tokens);
      EXPECT_LT(difference(layer.output, part_of_rank(one.output, tokens)), kExpertBound) << layout;
      EXPECT_LT(difference(layer.dx, part_of_rank(one.dx, tokens)), kExpertBound) << layout;
      EXPECT_EQ(layer.overflow, 0);
    });
}

/// The loss of all ranks together, from outputs alone.
double weighted_output(Layer& layer, const Tensor& x, const Tokens& tokens) {
  Context evaluation = layer.ctx;
  const std::vector<double> y = values_of(layer.layer->forward(evaluation, x, {}).output);
  const Tensor weights = layer.upload("seed", tokens);
  Tensor loss = layer.ctx.empty("loss", {1}, DType::kFloat64);
  double& sum = *loss.data<double>() = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += y[i] * weights.data<double>()[i];
  layer.groups.world.all_reduce(loss.view(), ReduceOp::kSum, {}).wait();
  return sum;
}

TEST(ExpertParallelLayer, GradientsAreFiniteDifferencesOfTheLossOfAllRanks) {
  for (const Layout& layout : {Layout{4, 2, 2, 2}, Layout{4, 2, 2, 2, kAllToAll}, Layout{4, 1, 4, 1, kAllToAll}})
    run_ranks(layout.world, [&](RankContext& rank) {
      Layer layer(kVariants[2], groups_of(rank.world, layout), layout.dispatcher);
      const Tokens tokens = tokens_of(layer.groups);
      layer.run(tokens);
      Parameter& expert = *layer.weights()[1];  // of fc1; each of its shards is on one rank here
      ASSERT_EQ(replicas_of(expert, layer.groups).all.size(), 1);
      const Tensor x = layer.upload("x", tokens);
      // Every rank changes an element in turn, and all compute the loss.
      for (int changed = 0; changed < layout.world; ++changed)
        for (int64_t place = 1; place < 40; place += 13) {
          for (const bool of_weight : {false, true}) {
            double* values = (of_weight ? expert.value() : x).data<double>();
            const auto loss_at = [&](double step) {
              const double before = values[place];
              if (rank.rank == changed) values[place] += step;
              const double loss = weighted_output(layer, x, tokens);
              values[place] = before;
              return loss;
            };
            const double slope = (loss_at(kDifferenceStep) - loss_at(-kDifferenceStep)) / (2 * kDifferenceStep);
            if (rank.rank != changed) continue;
            const double gradient =
                of_weight ? expert.main_grad().data<double>()[place] : layer.dx[static_cast<size_t>(place)];
            EXPECT_NEAR(gradient, slope, kGradientTolerance * 10) << layout << " element " << place;
          }
        }
    });
}

TEST(ExpertParallelLayer, GivesTheSameBitsTwice) {
  const Layout layout{4, 2, 2, 2, kAllToAll};
  run_ranks(layout.world, [&](RankContext& rank) {
    const ProcessGroupCollection groups = groups_of(rank.world, layout);
    Layer first(kVariants[2], groups, layout.dispatcher), second(kVariants[2], groups, layout.dispatcher);
    for (Layer* layer : {&first, &second}) layer->run(tokens_of(groups));
    EXPECT_EQ(first.output, second.output);
    EXPECT_EQ(first.dx, second.dx);
    for (size_t i = 0; i < first.weights().size(); ++i)
      EXPECT_EQ(values_of(first.weights()[i]->main_grad()), values_of(second.weights()[i]->main_grad()));
  });
}

TEST(ExpertParallelLayer, SharedExpertsBesideTheDispatchChangeNoBit) {
  const auto variant = [](bool overlaps, std::optional<double> room) {
    return Variant{"shared", Unit::kAll, [overlaps, room](MoeConfig& m, TransformerConfig&) {
                     m.shared_expert_intermediate_size = 6;
                     m.shared_expert_gate = true;
                     m.shared_expert_overlap = overlaps;
                     m.expert_rank_capacity_factor = room;
                   }};
  };
  for (const Layout& layout : {Layout{1, 1, 1, 1}, Layout{2, 1, 2, 1}, Layout{2, 1, 2, 1, kAllToAll},
                               Layout{2, 1, 1, 2, kAllToAll}, Layout{4, 2, 2, 2, kAllToAll}, Layout{4, 2, 4, 1}})
    for (const std::optional<double> room : {std::optional<double>(), std::optional<double>(4)})
      for (const bool recomputes : {false, true})
        run_ranks(layout.world, [&](RankContext& rank) {
          const ProcessGroupCollection groups = groups_of(rank.world, layout);
          Layer one(variant(false, room), groups, layout.dispatcher),
              other(variant(true, room), groups, layout.dispatcher);
          for (Layer* layer : {&one, &other}) layer->run(tokens_of(groups), recomputes);
          EXPECT_EQ(one.output, other.output) << layout;
          EXPECT_EQ(one.dx, other.dx) << layout;
          for (size_t i = 0; i < one.weights().size(); ++i)
            EXPECT_EQ(values_of(one.weights()[i]->main_grad()), values_of(other.weights()[i]->main_grad())) << layout;
        });
}

/// All tokens go to the first expert, which has room for half of them: the flag says so on one rank at least. Without
/// the bound, and with one that suffices, the results are those of a layer that has none, bit for bit. In rounds, sums
/// over tokens are rounded in another order.
TEST(ExpertParallelLayer, RepeatedWithoutTheBoundAfterAnOverflowGivesTheBitsOfAnUnboundedRun) {
  const auto bounded = [](std::optional<double> factor, int64_t num_rounds = 1) {
    return Variant{"bounded", Unit::kAll, [factor, num_rounds](MoeConfig& m, TransformerConfig&) {
                     m.topk = {.topk = 1, .pre_softmax = true}, m.expert_rank_capacity_factor = factor;
                     m.num_exact_rounds = num_rounds;
                   }};
  };
  for (const Layout& layout : {Layout{4, 1, 4, 1}, Layout{4, 1, 4, 1, kAllToAll}, Layout{4, 2, 2, 2, kAllToAll}})
    run_ranks(layout.world, [&](RankContext& rank) {
      const ProcessGroupCollection groups = groups_of(rank.world, layout);
      const Tokens tokens = tokens_of(groups);
      Layer unbounded(bounded({}), groups, layout.dispatcher),
          tight(bounded(layout.ep / 2.0), groups, layout.dispatcher),
          roomy(bounded(layout.ep), groups, layout.dispatcher);
      const auto run = [&](Layer& layer) {
        Tensor& router = layer.weights()[0]->value();
        std::fill_n(router.data<double>(), router.num_elements(), 0.0);
        layer.step.overflow = 0;
        layer.run(tokens);
        Tensor any = layer.ctx.empty("overflow", {1}, DType::kInt32);
        *any.data<int32_t>() = layer.overflow;
        groups.world.all_reduce(any.view(), ReduceOp::kMax, {}).wait();
        return *any.data<int32_t>() != 0;
      };
      const auto expect_same_bits = [&](const Layer& layer) {
        EXPECT_EQ(layer.output, unbounded.output) << layout;
        EXPECT_EQ(layer.dx, unbounded.dx) << layout;
        for (size_t i = 0; i < layer.weights().size(); ++i)
          EXPECT_EQ(values_of(layer.weights()[i]->main_grad()), values_of(unbounded.weights()[i]->main_grad()));
      };
      EXPECT_FALSE(run(unbounded)) << layout;
      EXPECT_FALSE(run(roomy)) << layout;
      expect_same_bits(roomy);
      EXPECT_TRUE(run(tight)) << layout;
      tight.layer->set_bounded(false);
      EXPECT_FALSE(run(tight)) << layout;
      expect_same_bits(tight);
      for (const int64_t num_rounds : {2, 5, 1000}) {  // tokens do not divide, and are fewer
        Layer in_rounds(bounded(layout.ep / 2.0, num_rounds), groups, layout.dispatcher);
        in_rounds.layer->set_bounded(false);
        EXPECT_FALSE(run(in_rounds)) << layout;
        EXPECT_EQ(in_rounds.output, unbounded.output) << layout << ", " << num_rounds << " rounds";
        EXPECT_EQ(in_rounds.dx, unbounded.dx) << layout << ", " << num_rounds << " rounds";
        for (size_t i = 0; i < in_rounds.weights().size(); ++i)
          EXPECT_LE(difference(values_of(in_rounds.weights()[i]->main_grad()),
                               values_of(unbounded.weights()[i]->main_grad())),
                    kExpertBound);
      }
    });
}

TEST(ExpertParallelLayer, RejectsWhatRanksCannotShare) {
  const auto rejects = [](const Layout& layout, const Variant& variant, const char* text) {
    run_ranks(layout.world, [&](RankContext& rank) {
      const ProcessGroupCollection groups = groups_of(rank.world, layout);
      EXPECT_THAT([&] { Layer(variant, groups, layout.dispatcher); },
                  ::testing::ThrowsMessage<ConfigError>(HasSubstr(text)));
    });
  };
  rejects({2, 1, 2, 1}, {"odd", Unit::kAll, [](MoeConfig& m, TransformerConfig&) { m.num_experts = 5; }},
          "5 experts do not divide by 2 expert-parallel ranks");
  rejects({2, 1, 1, 2}, {"odd", Unit::kAll, [](MoeConfig& m, TransformerConfig&) { m.ffn_hidden_size = 7; }},
          "width 7 does not divide by 2 expert-tensor-parallel ranks");
  rejects({2, 1, 1, 2}, {"bias", Unit::kAll, [](MoeConfig&, TransformerConfig& c) { c.add_bias_linear = true; }},
          "--disable-bias-linear");
  run_ranks(2, [&](RankContext& rank) {
    const ProcessGroupCollection groups = groups_of(rank.world, {2, 2, 1, 2});
    TestDevice device;
    const Context ctx = device.context();
    TransformerConfig config;
    config.num_layers = 1;
    config.hidden_size = 4;
    EXPECT_THAT(([&] {
                  MoeLayer({.ctx = ctx, .config = config, .groups = groups, .path = "mlp"},
                           {.num_experts = 2, .ffn_hidden_size = 4});
                }),
                ::testing::ThrowsMessage<ConfigError>(HasSubstr("--sequence-parallel")));
  });
}

}  // namespace
}  // namespace megatron::testing
