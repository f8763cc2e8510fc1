// Gradients of experts are summed over their replicas, counted once in the norm, and stepped as on one rank.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "megatron/distributed/finalize_model_grads.h"
#include "megatron/optimizer/optimizer.h"
#include "tests/transformer/moe/expert_parallel_layer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 3;
constexpr double kBound = 1e-11;

struct Training {
  Layout layout;
  bool shards = false;      // the distributed optimizer
  bool sums_tokens = true;  // else the mean over data-parallel ranks
  bool averages_in_collective = false;
  bool grouped = true;
};

struct Outcome {
  std::vector<double> norms, zeros;
  std::map<std::string, std::vector<double>> weights;  // of this rank's shards
};

Outcome train(const Training& training, Layer& layer, const Tokens& tokens) {
  const DistributedDataParallelConfig config{.use_distributed_optimizer = training.shards,
                                             .calculate_per_token_loss = training.sums_tokens,
                                             .average_in_collective = training.averages_in_collective};
  const std::vector<Parameter*> parameters = layer.weights();
  DistributedDataParallel ddp(layer.ctx, {parameters}, layer.groups, config);
  OptimizerConfig options{.lr = 1e-2};
  options.params_dtype = DType::kFloat64;
  options.use_distributed_optimizer = training.shards;
  options.clip_grad = 0.5;
  options.log_num_zeros_in_grad = true;
  Optimizer optimizer(layer.ctx, options, ddp);
  optimizer.reload_main_params(layer.ctx);
  ParamSchedulerConfig rates;
  rates.max_lr = 1e-2;
  rates.lr_decay_steps = 1000;
  ParamScheduler scheduler(rates);
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    layer.step = {.step = step};
    optimizer.begin_step(layer.ctx, scheduler, 1, layer.step);
    ddp.begin_step();
    layer.forward_backward(tokens);
    ddp.finish_grad_sync();
    all_reduce_tensor_parallel_grads(layer.ctx, ddp.parameters(), layer.groups.tp);
    Readback readback;
    const StepResult result = optimizer.step(layer.ctx, readback);
    scheduler.step(1);
    outcome.norms.push_back(result.grad_norm);
    outcome.zeros.push_back(static_cast<double>(result.num_zeros.value()));
  }
  ddp.finish_param_sync();
  for (Parameter* parameter : parameters) outcome.weights[parameter->name()] = values_of(parameter->value());
  return outcome;
}

Variant variant_of(const Training& training) {
  return {"gated", Unit::kAll, [grouped = training.grouped](MoeConfig& m, TransformerConfig& c) {
            c.gated_linear_unit = true, c.activation_func = ActivationFunc::kSilu, m.grouped_gemm = grouped;
          }};
}

void expect_one_rank(const Training& training) {
  const Layout& layout = training.layout;
  const int data = layout.world / layout.tp;
  Layer one(variant_of(training), ProcessGroupCollection::single(), layout.dispatcher);
  one.seed_scale = training.sums_tokens ? 1 : 1.0 / data;
  const Outcome expected = train({.layout = layout}, one, {});
  EXPECT_GT(expected.norms[0], 0.5) << "nothing is clipped";
  run_ranks(layout.world, [&](RankContext& rank) {
    Layer layer(variant_of(training), groups_of(rank.world, layout), layout.dispatcher);
    const Outcome outcome = train(training, layer, tokens_of(layer.groups));
    for (size_t step = 0; step < kSteps; ++step) {
      EXPECT_NEAR(outcome.norms[step], expected.norms[step], kBound * expected.norms[step]) << layout;
      EXPECT_EQ(outcome.zeros[step], expected.zeros[step]) << layout;
    }
    for (const Parameter* parameter : layer.weights()) {
      const std::vector<double>&own = outcome.weights.at(parameter->name()),
            &whole = expected.weights.at(parameter->name());
      double largest = 0;
      for_each_shard_element(*parameter, [&](int64_t global, int64_t local) {
        const double error = std::abs(own[static_cast<size_t>(local)] - whole[static_cast<size_t>(global)]);
        largest = std::isnan(error) ? HUGE_VAL : std::max(largest, error);
      });
      EXPECT_LT(largest, kBound) << layout << " " << parameter->name();
    }
  });
}

constexpr Layout kLayouts[] = {{2, 1, 2, 1}, {2, 2, 1, 1}, {4, 1, 2, 1}, {4, 2, 1, 2},
                               {4, 2, 2, 2}, {4, 2, 4, 1}, {4, 2, 2, 1}};

TEST(ExpertParallelOptimizer, StepsWholeParametersAsOneRank) {
  for (const Layout& layout : kLayouts) expect_one_rank({.layout = layout});
  expect_one_rank({.layout = {4, 2, 2, 1}, .grouped = false});
}

TEST(ExpertParallelOptimizer, StepsShardsOverTheReplicasOfEachGridAsOneRank) {
  for (const Layout& layout : kLayouts) expect_one_rank({.layout = layout, .shards = true});
  expect_one_rank({.layout = {4, 1, 2, 1}, .shards = true, .grouped = false});
}

TEST(ExpertParallelOptimizer, TakesTheMeanOverDataParallelRanksOfExpertsToo) {
  for (const bool averages : {false, true})
    for (const Layout& layout : kLayouts)
      expect_one_rank({.layout = layout, .shards = true, .sums_tokens = false, .averages_in_collective = averages});
}

}  // namespace
}  // namespace megatron::testing
