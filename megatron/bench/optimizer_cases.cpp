#include <algorithm>

#include "megatron/bench/state_bytes.h"
#include "megatron/bench/step_kernels.h"
#include "megatron/bench/transformer_engine.h"
#include "megatron/core/copy.h"
#include "megatron/kernels/adam.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/gradient_statistics.h"
#include "megatron/kernels/sgd.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// Only a part of all parameters is measured: time is proportional.
constexpr int64_t kMostElements = int64_t{1} << 26;

/// Bytes that a step of one parameter moves: its state is read and written, its gradient read, its rounded weight
/// written, and also read if its remainder is stored separately.
int64_t bytes_of_update(const StepShapes& z) {
  const OptimizerDTypes state(z);
  int64_t bytes = size_of(z.gradient_dtype) + 2 * size_of(state.first_moment);
  if (state.is_adam) bytes += 2 * size_of(state.second_moment);
  if (state.has_remainder()) return bytes + 2 * 2 + 2 * size_of(z.model.params_dtype);
  return bytes + 2 * size_of(state.main) + (state.steps_weights() ? 0 : size_of(z.model.params_dtype));
}

struct UpdateOperands {
  UpdateOperands(const Context& ctx, const StepShapes& z, int64_t n)
      : state(z),
        p(state.has_remainder() ? Tensor() : random_tensor(ctx, {n}, state.main)),
        remainder(state.has_remainder() ? constant_tensor(ctx, {n, 2}, DType::kUInt8, 0) : Tensor()),
        g(random_tensor(ctx, {n}, z.gradient_dtype, 1, "gradient")),
        m(random_tensor(ctx, {n}, state.first_moment, 1, "moment")),
        v(state.is_adam ? constant_tensor(ctx, {n}, state.second_moment, 1) : Tensor()),
        weight(state.steps_weights() ? Tensor() : random_tensor(ctx, {n}, z.model.params_dtype)) {}
  OptimizerDTypes state;
  Tensor p, remainder, g, m, v, weight;
};

KernelCall update(const Context& ctx, const UpdateOperands& operands) {
  return [&ctx, o = operands]() mutable {
    launch(ctx, {.name = "optimizer"}, [&](auto& stream) {
      if (o.state.is_adam)
        kernels::adam(stream, {.parameter = o.p.view(),
                               .remainder = o.remainder.view(),
                               .gradient = std::as_const(o.g).view(),
                               .first_moment = o.m.view(),
                               .second_moment = o.v.view(),
                               .model_weight = o.weight.view(),
                               .state = &ctx.step});
      else
        kernels::sgd(stream, {.parameter = o.p.view(),
                              .gradient = std::as_const(o.g).view(),
                              .momentum_buffer = o.m.view(),
                              .model_weight = o.weight.view(),
                              .state = &ctx.step});
    });
  };
}

/// All lists have one tensor.
PeerCall adam_peer(const Context& ctx, const TransformerEngine& engine, const StepShapes& z, int64_t n) {
  const UpdateOperands o(ctx, z, n), theirs(ctx, z, n);
  const OptimizerDTypes& state = o.state;
  std::vector<EngineTensor> operands = {EngineTensor(engine, theirs.g),
                                        EngineTensor(engine, state.steps_weights() ? theirs.p : theirs.weight),
                                        EngineTensor(engine, theirs.m), EngineTensor(engine, theirs.v)};
  if (state.has_remainder())
    operands.push_back(EngineTensor::of_int16(engine, theirs.remainder));
  else if (!state.steps_weights())
    operands.emplace_back(engine, theirs.p);
  const EngineTensor noop(engine, constant_tensor(ctx, {1}, DType::kInt32, 0));
  PeerCall call;
  call.theirs = [=, &ctx, function = state.has_remainder() ? engine.call().adam_with_remainder : engine.call().adam] {
    std::vector<TransformerEngine::Handle> handles(operands.begin(), operands.end());
    std::vector<TransformerEngine::Handle*> lists(handles.size());
    std::ranges::transform(handles, lists.begin(), [](TransformerEngine::Handle& handle) { return &handle; });
    const kernels::AdamArgs like_ours;
    launch_engine(ctx, [&](TransformerEngine::Stream stream) {
      function(TransformerEngine::kChunkSize, noop, lists.data(), lists.size(), 1,
               static_cast<float>(kBenchLearningRate), static_cast<float>(like_ours.beta1),
               static_cast<float>(like_ours.beta2), static_cast<float>(like_ours.epsilon), 1, TransformerEngine::kAdamW,
               0, 0, stream);
    });
  };
  call.ours = update(ctx, o);
  constexpr int64_t kTerms = 4;
  call.results = {{"first moment", o.m, theirs.m, state.first_moment, kTerms},
                  {"second moment", o.v, theirs.v, state.second_moment, kTerms}};
  if (o.p.defined()) call.results.push_back({"parameter", o.p, theirs.p, state.main, kTerms});
  if (o.weight.defined()) call.results.push_back({"weight", o.weight, theirs.weight, z.model.params_dtype, kTerms});
  return call;
}

struct NormOperands {
  NormOperands(const Context& ctx, DType dtype, int64_t n)
      : g(random_tensor(ctx, {n}, dtype)),
        largest(ctx.empty("largest", {1}, DType::kFloat64)),
        guess(ctx.empty("guess", {1}, DType::kFloat64)),
        limbs(ctx.empty("limbs", {kernels::kSumLimbs}, DType::kInt64)),
        workspace(ctx.workspace("workspace", kernels::gradient_statistics_workspace_bytes(n))) {}
  Tensor g, largest, guess, limbs, workspace;
};

/// The largest gradient and the sum of squares, if the step before had the same largest gradient.
KernelCall norm(const Context& ctx, const NormOperands& operands) {
  launch(ctx, [&, o = operands](auto& stream) mutable {
    kernels::largest_absolute(
        stream,
        {.x = std::as_const(o.g).view(), .result = o.guess.template data<double>(), .workspace = o.workspace.view()});
  });
  return [&ctx, o = operands]() mutable {
    launch(ctx, {.name = "global_norm"}, [&](auto& stream) {
      kernels::largest_absolute(stream, {.x = std::as_const(o.g).view(),
                                         .result = o.largest.data<double>(),
                                         .workspace = o.workspace.view(),
                                         .guess = o.guess.data<double>(),
                                         .limbs = o.limbs.data<int64_t>()});
      kernels::squared_sum(stream, {.x = std::as_const(o.g).view(),
                                    .largest = o.largest.data<double>(),
                                    .limbs = o.limbs.data<int64_t>(),
                                    .workspace = o.workspace.view(),
                                    .guess = o.guess.data<double>()});
    });
  };
}

PeerCall norm_peer(const Context& ctx, const TransformerEngine& engine, DType dtype, int64_t n) {
  const NormOperands o(ctx, dtype, n);
  Tensor ours = ctx.empty("norm", {1}, DType::kFloat64);
  const Tensor theirs = ctx.empty("norm", {1}, DType::kFloat32);
  Tensor sums = ctx.empty("sums", {TransformerEngine::kNormSums}, DType::kFloat32);
  const EngineTensor gradient(engine, o.g), engine_sums(engine, sums), norm_of(engine, theirs),
      noop(engine, constant_tensor(ctx, {1}, DType::kInt32, 0)), nothing(engine, Tensor());
  const auto max_chunks = static_cast<int>(n / TransformerEngine::kChunkSize + 1);
  PeerCall call;
  call.theirs = [=, &ctx, &engine]() mutable {
    fill_zero(ctx.device, sums.view().data, sums.bytes());
    TransformerEngine::Handle handle = gradient, *list = &handle;
    launch_engine(ctx, [&](TransformerEngine::Stream stream) {
      engine.call().l2norm(TransformerEngine::kChunkSize, noop, &list, 1, 1, engine_sums, nothing, norm_of, nothing, 0,
                           max_chunks, stream);
    });
  };
  call.ours = [sum = norm(ctx, o), o, ours, &ctx]() mutable {
    sum();
    launch(ctx, [&](auto& stream) {
      kernels::clip_factor(
          stream, {.largest = o.largest.data<double>(), .limbs = o.limbs.data<int64_t>(), .norm = ours.data<double>()});
    });
  };
  call.results = {{"norm", ours, theirs, DType::kFloat32, n}};
  return call;
}

}  // namespace

void add_optimizer_cases(const StepShapes& z, int64_t num_optimized, std::vector<KernelCase>& cases) {
  const int64_t n = std::min(num_optimized, kMostElements);
  if (n == 0) return;
  const double calls = static_cast<double>(num_optimized) / static_cast<double>(n);
  const bool is_adam = z.optimizer.optimizer == OptimizerType::kAdam;
  KernelCase step{.name = is_adam ? "Adam" : "SGD",
                  .calls = calls,
                  .bytes = static_cast<double>(n * bytes_of_update(z)),
                  .prepare = [=](const Context& ctx) { return update(ctx, UpdateOperands(ctx, z, n)); }};
  if (is_adam)
    step.peer = [=](const Context& ctx, const TransformerEngine& engine) { return adam_peer(ctx, engine, z, n); };
  step.peer_note = "without the clip factor and stochastic rounding of 16-bit weights and second moments";
  add_memory_case(std::move(step), cases);
  add_memory_case({.name = "gradient norm",
                   .calls = calls,
                   .bytes = static_cast<double>(n * size_of(z.gradient_dtype)),
                   .prepare = [=](const Context& ctx) { return norm(ctx, NormOperands(ctx, z.gradient_dtype, n)); },
                   .peer = [=](const Context& ctx,
                               const TransformerEngine& engine) { return norm_peer(ctx, engine, z.gradient_dtype, n); },
                   .peer_note = "adds in fp32, ours in fixed point and finds the largest too"},
                  cases);
}

void add_memory_case(KernelCase kernel, std::vector<KernelCase>& cases) {
  if (kernel.calls > 0) cases.push_back(std::move(kernel));
}

std::vector<KernelCase> memory_cases(const StepShapes& shapes, const StageParts& stage, int64_t num_optimized) {
  std::vector<KernelCase> cases;
  add_norm_cases(shapes, stage, cases);
  add_activation_cases(shapes, stage, cases);
  add_expert_cases(shapes, stage, cases);
  add_position_cases(shapes, stage, cases);
  add_residual_cases(shapes, stage, cases);
  add_vocabulary_cases(shapes, stage, cases);
  add_optimizer_cases(shapes, num_optimized, cases);
  return cases;
}

}  // namespace megatron
