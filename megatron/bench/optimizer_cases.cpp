#include <algorithm>

#include "megatron/bench/step_kernels.h"
#include "megatron/kernels/adam.h"
#include "megatron/kernels/cuda/adam.h"
#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/cuda/gradient_statistics.h"
#include "megatron/kernels/cuda/sgd.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/gradient_statistics.h"
#include "megatron/kernels/sgd.h"
#include "megatron/ops/rows.h"
#include "megatron/optimizer/main_params.h"

namespace megatron {
namespace {

/// A part of all parameters is measured: time is in proportion.
constexpr int64_t kMostElements = int64_t{1} << 26;

/// What the optimizer keeps of a parameter beside its weight and gradient.
struct StateDTypes {
  explicit StateDTypes(const StepShapes& z)
      : is_adam(z.optimizer.optimizer == OptimizerType::kAdam),
        form(main_params_of(z.model.params_dtype, z.optimizer)),
        main(steps_weights() ? z.model.params_dtype : DType::kFloat32) {
    const bool is_double = main == DType::kFloat64;
    first_moment = is_double ? main : dtype_of(z.optimizer.exp_avg_dtype);
    second_moment = is_double ? main : dtype_of(z.optimizer.exp_avg_sq_dtype);
  }
  bool steps_weights() const { return form == MainParams::kWeights; }
  bool has_remainder() const { return form == MainParams::kRemainder; }
  bool is_adam;
  MainParams form;
  DType main, first_moment, second_moment;
};

/// Moved by a step of one parameter: its state is read and written, its gradient read, its rounded weight written, and
/// read where the rest of it is kept apart.
int64_t bytes_of_update(const StepShapes& z) {
  const StateDTypes state(z);
  int64_t bytes = size_of(z.gradient_dtype) + 2 * size_of(state.first_moment);
  if (state.is_adam) bytes += 2 * size_of(state.second_moment);
  if (state.has_remainder()) return bytes + 2 * 2 + 2 * size_of(z.model.params_dtype);
  return bytes + 2 * size_of(state.main) + (state.steps_weights() ? 0 : size_of(z.model.params_dtype));
}

KernelCall update(const Context& ctx, const StepShapes& z, int64_t n) {
  const StateDTypes state(z);
  Tensor p = state.has_remainder() ? Tensor() : random_tensor(ctx, {n}, state.main);
  Tensor remainder = state.has_remainder() ? constant_tensor(ctx, {n, 2}, DType::kUInt8, 0) : Tensor();
  Tensor g = random_tensor(ctx, {n}, z.gradient_dtype), m = random_tensor(ctx, {n}, state.first_moment);
  Tensor v = state.is_adam ? constant_tensor(ctx, {n}, state.second_moment, 1) : Tensor();
  Tensor weight = state.steps_weights() ? Tensor() : random_tensor(ctx, {n}, z.model.params_dtype);
  return [=, &ctx]() mutable {
    launch(ctx, {.name = "optimizer"}, [&](auto& stream) {
      if (state.is_adam)
        kernels::adam(stream, {.parameter = p.view(),
                               .remainder = remainder.view(),
                               .gradient = g.view(),
                               .first_moment = m.view(),
                               .second_moment = v.view(),
                               .model_weight = weight.view(),
                               .state = &ctx.step});
      else
        kernels::sgd(stream, {.parameter = p.view(),
                              .gradient = g.view(),
                              .momentum_buffer = m.view(),
                              .model_weight = weight.view(),
                              .state = &ctx.step});
    });
  };
}

/// The largest gradient and the sum of squares, where the step before had as large a one.
KernelCall norm(const Context& ctx, DType dtype, int64_t n) {
  Tensor g = random_tensor(ctx, {n}, dtype);
  Tensor largest = ctx.empty("largest", {1}, DType::kFloat64), guess = ctx.empty("guess", {1}, DType::kFloat64);
  Tensor limbs = ctx.empty("limbs", {kernels::kSumLimbs}, DType::kInt64);
  Tensor workspace = ctx.workspace("workspace", kernels::gradient_statistics_workspace_bytes(n));
  launch(ctx, [&](auto& stream) {
    kernels::largest_absolute(stream, {.x = g.view(), .result = guess.data<double>(), .workspace = workspace.view()});
  });
  return [=, &ctx]() mutable {
    launch(ctx, {.name = "global_norm"}, [&](auto& stream) {
      kernels::largest_absolute(stream, {.x = g.view(),
                                         .result = largest.data<double>(),
                                         .workspace = workspace.view(),
                                         .guess = guess.data<double>(),
                                         .limbs = limbs.data<int64_t>()});
      kernels::squared_sum(stream, {.x = g.view(),
                                    .largest = largest.data<double>(),
                                    .limbs = limbs.data<int64_t>(),
                                    .workspace = workspace.view(),
                                    .guess = guess.data<double>()});
    });
  };
}

}  // namespace

void add_optimizer_cases(const StepShapes& z, int64_t num_optimized, std::vector<KernelCase>& cases) {
  const int64_t n = std::min(num_optimized, kMostElements);
  if (n == 0) return;
  const double calls = static_cast<double>(num_optimized) / static_cast<double>(n);
  add_memory_case({.name = z.optimizer.optimizer == OptimizerType::kAdam ? "Adam" : "SGD",
                   .calls = calls,
                   .bytes = static_cast<double>(n * bytes_of_update(z)),
                   .prepare = [=](const Context& ctx) { return update(ctx, z, n); }},
                  cases);
  add_memory_case({.name = "gradient norm",
                   .calls = calls,
                   .bytes = static_cast<double>(n * size_of(z.gradient_dtype)),
                   .prepare = [=](const Context& ctx) { return norm(ctx, z.gradient_dtype, n); }},
                  cases);
}

void add_memory_case(KernelCase kernel, std::vector<KernelCase>& cases) {
  if (kernel.calls > 0) cases.push_back(std::move(kernel));
}

std::vector<KernelCase> memory_cases(const StepShapes& shapes, const StageParts& stage, int64_t num_optimized) {
  std::vector<KernelCase> cases;
  add_norm_cases(shapes, stage, cases);
  add_activation_cases(shapes, stage, cases);
  add_position_cases(shapes, stage, cases);
  add_residual_cases(shapes, stage, cases);
  add_vocabulary_cases(shapes, stage, cases);
  add_optimizer_cases(shapes, num_optimized, cases);
  return cases;
}

}  // namespace megatron
