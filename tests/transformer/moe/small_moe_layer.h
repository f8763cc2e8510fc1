// A mixture of experts on one rank, with weights and tokens that do not depend on its form.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/autograd/recompute.h"
#include "megatron/core/copy.h"
#include "megatron/transformer/moe/moe_layer.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {

struct Variant {
  const char* name;
  std::function<void(MoeConfig&, TransformerConfig&)> change;
};

struct LayerSetup {
  DeviceKind device = DeviceKind::kCpu;
  int num_threads = 1;
  int64_t s = 7;
  DType dtype = DType::kFloat64;
  bool guard = false;
};

/// 6 experts of width 5 for two sequences of 7 tokens with 8 features, top 2.
struct Layer {
  explicit Layer(const std::function<void(MoeConfig&, TransformerConfig&)>& change, const LayerSetup& setup = {})
      : setup(setup),
        device(setup.device, {.num_threads = setup.num_threads,
                              .capacity_bytes = int64_t{1} << 28,
                              .poison = true,
                              .record_events = true,
                              .guard = setup.guard}) {
    config.num_layers = 1;
    config.hidden_size = 8;
    config.ffn_hidden_size = 5;
    config.add_bias_linear = false;
    config.params_dtype = setup.dtype;
    moe.num_experts = 6;
    moe.ffn_hidden_size = 5;
    change(moe, config);
    layer = std::make_unique<MoeLayer>(
        ModuleContext{.ctx = ctx, .config = config, .groups = ProcessGroupCollection::single(), .path = "mlp"}, moe);
    for (Parameter* parameter : layer->parameters()) {
      // Experts have the same values whether they are stacked or not.
      if (parameter->is_trainable()) fill(*parameter);
      const DType gradient = setup.dtype == DType::kFloat64 ? setup.dtype : DType::kFloat32;
      parameter->set_main_grad(ctx.empty("main_grad", parameter->shape(), gradient, MemoryUse::kGradients));
      parameter->begin_step();
    }
  }

  void fill(Parameter& parameter) {
    std::string name = parameter.name();
    int64_t first = 0;
    const std::string local = ".experts.local_experts.";
    if (const size_t place = name.find(local); place != std::string::npos) {
      first = std::stoll(name.substr(place + local.size())) * parameter.value().num_elements();
      name = name.substr(0, place) + ".experts.experts" + name.substr(name.find('.', place + local.size()));
    }
    fill(parameter.value(), name, first);
  }
  /// Numbers of 8 bits, the same in every dtype.
  void fill(Tensor& x, const std::string& name, int64_t first = 0) const {
    dispatch_floating(x.dtype(), [&]<class T>() {
      std::vector<T> values;
      for (int64_t i = 0; i < x.num_elements(); ++i)
        values.push_back(static_cast<T>(static_cast<float>(BFloat16(2 * uniform(ctx.key.at(name), first + i) - 1))));
      write_values<T>(ctx.device, values, x);
    });
  }

  /// Forward and backward; the gradients of the weights of one kind one after the other.
  void run(bool with_recompute = false) {
    Tape tape(ctx.device);
    Context training = ctx;
    training.tape = &tape;
    training.mode = GradMode::kRecord;
    Tensor x = ctx.empty("x", {setup.s, 2, 8}, setup.dtype);
    fill(x, "x");
    tape.watch(x);
    Tensor y;
    const int64_t blocks_before = device.arena.num_live_blocks();
    if (with_recompute) {
      y = at(recompute(training, {{"x", x}},
                       [&](Context& c, const Payload& in) {
                         return Payload{{"y", layer->forward(c, at(in, "x"), {}).output}};
                       }),
             "y");
    } else {
      y = layer->forward(training, x, {}).output;
    }
    num_kept = device.arena.num_live_blocks() - blocks_before;
    output = values_of(ctx.device, y);
    Tensor seed = ctx.empty("seed", y.shape(), setup.dtype);
    fill(seed, "seed");
    tape.seed(training, y.slot, std::move(seed));
    tape.backward(training, Phase::kBW, 0);
    gradients = {values_of(ctx.device, tape.take_gradient(x.slot))};
    std::map<std::string, std::vector<double>> by_kind;
    for (Parameter* parameter : layer->parameters()) {
      if (!parameter->is_trainable()) continue;
      parameter->finish(ctx);
      std::string kind = parameter->name();
      if (const size_t place = kind.find(".linear_"); place != std::string::npos && kind.find("shared") == kind.npos)
        kind = kind.substr(place);
      const std::vector<double> values = values_of(ctx.device, parameter->main_grad());
      by_kind[kind].insert(by_kind[kind].end(), values.begin(), values.end());
    }
    for (auto& [kind, values] : by_kind) gradients.push_back(values);
  }

  LayerSetup setup;
  Device device;
  StepState step{.step = 7};
  Context ctx{.device = device, .step = step, .key = RandomKey::from_seed(1234)};
  TransformerConfig config;
  MoeConfig moe;
  std::unique_ptr<MoeLayer> layer;
  std::vector<double> output;
  std::vector<std::vector<double>> gradients;
  int64_t num_kept = 0;  // blocks of memory between forward and backward
};

inline const Variant kVariants[] = {
    {"dropless", [](MoeConfig&, TransformerConfig&) {}},
    {"biases", [](MoeConfig&, TransformerConfig& c) { c.add_bias_linear = true; }},
    {"gated",
     [](MoeConfig&, TransformerConfig& c) { c.gated_linear_unit = true, c.activation_func = ActivationFunc::kSilu; }},
    {"dropped", [](MoeConfig& m, TransformerConfig& c) { m.expert_capacity_factor = 0.7, c.add_bias_linear = true; }},
    {"dropped by position",
     [](MoeConfig& m, TransformerConfig&) {
       m.expert_capacity_factor = 0.7, m.token_drop_policy = kernels::TokenDropPolicy::kPosition;
     }},
    {"padded to capacity",
     [](MoeConfig& m, TransformerConfig&) { m.expert_capacity_factor = 1.2, m.pad_expert_input_to_capacity = true; }},
    {"padded to a multiple",
     [](MoeConfig& m, TransformerConfig& c) { m.pad_expert_input_to_multiple = 4, c.add_bias_linear = true; }},
    {"probabilities on the input",
     [](MoeConfig& m, TransformerConfig& c) {
       m.topk = {.topk = 1, .pre_softmax = true}, m.apply_probs_on_input = true, c.add_bias_linear = true;
     }},
    {"shared experts",
     [](MoeConfig& m, TransformerConfig&) { m.shared_expert_intermediate_size = 7, m.shared_expert_gate = true; }},
    {"latent experts", [](MoeConfig& m, TransformerConfig& c) { m.latent_size = 3, c.add_bias_linear = true; }},
    {"losses",
     [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kSeqAuxLoss, 0.1}, {LoadBalancingType::kGlobalAuxLoss, 0.2}};
       m.z_loss_coeff = 0.1;
     }},
    {"quantile balancing",
     [](MoeConfig& m, TransformerConfig&) {
       m.load_balancing = {{LoadBalancingType::kQuantileBalancing, 0}};
     }},
    {"forced routing", [](MoeConfig& m, TransformerConfig&) { m.force_routing_bias_std = 0.5; }}};

}  // namespace megatron::testing
