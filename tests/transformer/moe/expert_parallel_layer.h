// A mixture of experts on one of several ranks, with weights and tokens that do not depend on the layout.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "megatron/autograd/recompute.h"
#include "megatron/autograd/shard_elements.h"
#include "megatron/transformer/moe/moe_layer.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {

inline constexpr int64_t kPositions = 6, kColumns = 4, kFeatures = 8;  // of all ranks together

enum class Unit { kRank, kSequences, kAll };  // the tokens that a variant treats together

struct Variant {
  const char* name;
  Unit unit;
  std::function<void(MoeConfig&, TransformerConfig&)> change;
  bool has_bias = false;  // so no expert tensor parallelism
};

struct Layout {
  int world, tp, ep, etp;
  TokenDispatcherType dispatcher = TokenDispatcherType::kAllGather;
};
inline std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << fmt::format("{} ranks, tp {}, ep {}, etp {}, dispatcher {}", layout.world, layout.tp, layout.ep,
                            layout.etp, static_cast<int>(layout.dispatcher));
}

/// A run of rows and columns of the batch of all ranks.
struct Tokens {
  int64_t first_position = 0, positions = kPositions, first_column = 0, columns = kColumns;
};

inline double value_of(const std::string& name, int64_t element) {
  return 2 * uniform(RandomKey::from_seed(77).at(name), element) - 1;
}

/// A layer of 8 experts of width 6 on one rank of some layout.
struct Layer {
  Layer(const Variant& variant, const ProcessGroupCollection& groups, TokenDispatcherType dispatcher) : groups(groups) {
    config.num_layers = 1;
    config.hidden_size = kFeatures;
    config.ffn_hidden_size = 6;
    config.add_bias_linear = false;
    config.params_dtype = DType::kFloat64;
    moe.num_experts = 8;
    moe.ffn_hidden_size = 6;
    moe.token_dispatcher_type = dispatcher;
    variant.change(moe, config);
    layer = std::make_unique<MoeLayer>(ModuleContext{.ctx = ctx,
                                                     .config = config,
                                                     .groups = this->groups,
                                                     .path = "mlp",
                                                     .sequence_parallel = groups.tp.size() > 1},
                                       moe);
    for (Parameter* parameter : weights()) {
      double* values = parameter->value().data<double>();
      for_each_shard_element(*parameter,
                             [&](int64_t whole, int64_t local) { values[local] = value_of(parameter->name(), whole); });
      parameter->set_main_grad(ctx.empty("main_grad", parameter->shape(), DType::kFloat64, MemoryUse::kGradients));
    }
  }

  /// Without what the router moves without a gradient.
  std::vector<Parameter*> weights() const {
    std::vector<Parameter*> weights = layer->parameters();
    std::erase_if(weights, [](const Parameter* parameter) { return !parameter->is_trainable(); });
    return weights;
  }

  Tensor upload(const std::string& name, const Tokens& tokens) const {
    Tensor x = ctx.empty(name, {tokens.positions, tokens.columns, kFeatures}, DType::kFloat64);
    double* values = x.data<double>();
    for (int64_t s = 0; s < tokens.positions; ++s)
      for (int64_t b = 0; b < tokens.columns; ++b)
        for (int64_t i = 0; i < kFeatures; ++i)
          *values++ =
              value_of(name, ((tokens.first_position + s) * kColumns + tokens.first_column + b) * kFeatures + i);
    return x;
  }

  /// A step with one micro-batch.
  void run(const Tokens& tokens, bool recomputes = false) {
    for (Parameter* parameter : weights()) parameter->begin_step();
    forward_backward(tokens, recomputes);
    for (Parameter* parameter : weights()) parameter->finish(ctx);
  }

  void forward_backward(const Tokens& tokens, bool recomputes = false) {
    Tape tape(ctx.device);
    Context training = ctx;
    training.tape = &tape;
    training.mode = GradMode::kRecord;
    Tensor x = upload("x", tokens);
    tape.watch(x);
    if (begins_step) layer->router().begin_step(ctx);
    const auto forward = [&](Context& c, const Payload& in) {
      MoeOutput result = layer->forward(c, at(in, "x"), {});
      if (c.is_first_run())
        for (const AuxiliaryLoss& loss : result.losses) losses.push_back(loss.value.data<double>()[0]);
      return Payload{{"y", result.output}};
    };
    const Tensor y = at(recomputes ? recompute(training, {{"x", x}}, forward) : forward(training, {{"x", x}}), "y");
    output = values_of(y);
    Tensor seed = upload("seed", tokens);
    for (int64_t i = 0; i < seed.num_elements(); ++i) seed.data<double>()[i] *= seed_scale;
    tape.seed(training, y.slot, std::move(seed));
    tape.backward(training, Phase::kBW, 0);
    dx = values_of(tape.take_gradient(x.slot));
    overflow = step.overflow;
  }

  TestDevice device{DeviceKind::kCpu, 1};
  StepState& step = device.step;
  Context ctx = device.context();
  ProcessGroupCollection groups;
  TransformerConfig config;
  MoeConfig moe;
  std::unique_ptr<MoeLayer> layer;
  std::vector<double> output, dx, losses;
  double seed_scale = 1;
  bool begins_step = true;  // false: a micro-batch of a step that has begun
  int32_t overflow = 0;
};

inline ProcessGroupCollection groups_of(World& world, const Layout& layout) {
  return ProcessGroupCollection::make(world, ParallelLayout({.world_size = layout.world,
                                                             .tensor_model_parallel_size = layout.tp,
                                                             .expert_model_parallel_size = layout.ep,
                                                             .expert_tensor_parallel_size = layout.etp}));
}

inline Tokens tokens_of(const ProcessGroupCollection& groups) {
  const int64_t tp = groups.tp.size(), dp = groups.dp.size();
  return {.first_position = groups.tp.rank() * kPositions / tp,
          .positions = kPositions / tp,
          .first_column = groups.dp.rank() * kColumns / dp,
          .columns = kColumns / dp};
}

}  // namespace megatron::testing
