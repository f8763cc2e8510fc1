#include <algorithm>

#include "megatron/bench/step_kernels.h"
#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/gather_rows.h"
#include "megatron/kernels/weighted_activation.h"
#include "megatron/transformer/mlp.h"

namespace megatron {
namespace {

/// The order of balanced tokens: each goes to as many experts, and each expert has as many tokens.
struct BalancedRoutes {
  explicit BalancedRoutes(const Context& ctx, const StepShapes& z)
      : choices(std::min(z.experts.topk, z.experts.num)), num_tokens(z.experts.rows / choices) {
    const int64_t e = z.experts.num;
    std::vector<std::vector<int32_t>> of_expert(static_cast<size_t>(e));
    for (int64_t t = 0; t < num_tokens; ++t)
      for (int64_t j = 0; j < choices; ++j)
        of_expert[static_cast<size_t>((t * choices + j) % e)].push_back(static_cast<int32_t>(t));
    std::vector<int32_t> token_of_row, next(static_cast<size_t>(num_tokens)),
        slot_of(static_cast<size_t>(num_tokens * choices));
    for (const std::vector<int32_t>& list : of_expert)
      for (const int32_t t : list) {
        slot_of[static_cast<size_t>(t * choices + next[static_cast<size_t>(t)]++)] =
            static_cast<int32_t>(token_of_row.size());
        token_of_row.push_back(t);
      }
    tokens = ctx.empty("tokens", {num_rows()}, DType::kInt32);
    slots = ctx.empty("slots", {num_tokens, choices}, DType::kInt32);
    write_values<int32_t>(ctx.device, token_of_row, tokens);
    write_values<int32_t>(ctx.device, slot_of, slots);
  }
  int64_t num_rows() const { return num_tokens * choices; }

  int64_t choices, num_tokens;
  Tensor tokens, slots;
};

/// Rows of tokens to rows of experts.
KernelCall gather(const Context& ctx, const StepShapes& z) {
  const BalancedRoutes routes(ctx, z);
  const DType dtype = z.model.params_dtype;
  const Tensor x = random_tensor(ctx, {routes.num_tokens, z.h}, dtype);
  return [&ctx, routes, x, y = ctx.empty("rows", {routes.num_rows(), z.h}, dtype)]() mutable {
    launch(ctx, {.name = "permute"}, [&](auto& stream) {
      kernels::gather_rows(stream, {.x = x.view(), .index = std::as_const(routes.tokens).view(), .y = y.view()});
    });
  };
}

/// And back: the sum of the rows of each token.
KernelCall combine(const Context& ctx, const StepShapes& z) {
  const BalancedRoutes routes(ctx, z);
  const DType dtype = z.model.params_dtype;
  const Tensor x = random_tensor(ctx, {routes.num_rows(), z.h}, dtype);
  return [&ctx, routes, x, y = ctx.empty("tokens", {routes.num_tokens, z.h}, dtype)]() mutable {
    launch(ctx, {.name = "unpermute"}, [&](auto& stream) {
      kernels::combine_rows_forward(stream,
                                    {.x = x.view(), .slots = std::as_const(routes.slots).view(), .y = y.view()});
    });
  };
}

/// The sum of the gradients that the router and the experts give their input.
KernelCall add_gradients(const Context& ctx, const StepShapes& z) {
  const Shape shape{z.rows, z.h};
  const Tensor a = random_tensor(ctx, shape, z.model.params_dtype), b = random_tensor(ctx, shape, z.model.params_dtype);
  return [&ctx, a, b, y = ctx.empty("y", shape, z.model.params_dtype)]() mutable {
    launch(ctx, {.name = "add", .shape = &a.shape()},
           [&](auto& stream) { kernels::add(stream, {.a = a.view(), .b = b.view(), .y = y.view()}); });
  };
}

KernelCall weighted_activation(const Context& ctx, const StepShapes& z, bool is_backward) {
  const DType dtype = z.model.params_dtype, of_probs = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
  const int64_t rows = z.experts.rows, f = z.experts.f;
  const bool is_gated = z.model.gated_linear_unit;
  const kernels::Activation kind = kernel_of(z.model.activation_func);
  const Tensor x = random_tensor(ctx, {rows, is_gated ? 2 * f : f}, dtype),
               weights = random_tensor(ctx, {rows}, of_probs);
  if (!is_backward)
    return [=, &ctx, y = ctx.empty("y", {rows, f}, dtype)]() mutable {
      launch(ctx, {.name = "weighted_activation", .shape = &x.shape()}, [&](auto& stream) {
        kernels::weighted_activation_forward(
            stream,
            {.x = x.view(), .weights = weights.view(), .y = y.view(), .activation = kind, .is_gated = is_gated});
      });
    };
  return [=, &ctx, dy = random_tensor(ctx, {rows, f}, dtype, 1, "dy"), dx = ctx.empty_like("dx", x),
          dweights = ctx.empty_like("dweights", weights)]() mutable {
    launch(ctx, {.name = "weighted_activation", .shape = &x.shape()}, [&](auto& stream) {
      kernels::weighted_activation_backward(stream, {.x = x.view(),
                                                     .weights = weights.view(),
                                                     .dy = std::as_const(dy).view(),
                                                     .dx = dx.view(),
                                                     .dweights = dweights.view(),
                                                     .activation = kind,
                                                     .is_gated = is_gated});
    });
  };
}

}  // namespace

void add_expert_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  if (stage.num_experts == 0) return;
  const auto calls = static_cast<double>(stage.num_experts * z.num_microbatches);
  const auto size = static_cast<double>(size_of(z.model.params_dtype));
  const int64_t choices = std::min(z.experts.topk, z.experts.num), tokens = z.experts.rows / choices;
  const double moved = static_cast<double>((tokens + tokens * choices) * z.h) * size;
  const auto add = [&](std::string name, double bytes, std::function<KernelCall(const Context&)> prepare) {
    add_memory_case({.name = std::move(name), .calls = calls, .bytes = bytes, .prepare = std::move(prepare)}, cases);
  };
  const auto gathered = [z](const Context& ctx) { return gather(ctx, z); };
  const auto combined = [z](const Context& ctx) { return combine(ctx, z); };
  add("permute forward", moved, gathered);
  add("permute backward", moved, combined);
  add("unpermute forward", moved, combined);
  add("unpermute backward", moved, gathered);
  add("router + experts, add backward", 3 * static_cast<double>(z.rows * z.h) * size,
      [z](const Context& ctx) { return add_gradients(ctx, z); });
  const double half = static_cast<double>(z.experts.rows * z.experts.f) * size;
  const bool is_gated = z.model.gated_linear_unit;
  for (const bool is_backward : {false, true})
    add(is_backward ? "weighted activation backward" : "weighted activation forward",
        half * (is_backward ? (is_gated ? 5 : 3) : (is_gated ? 3 : 2)),
        [z, is_backward](const Context& ctx) { return weighted_activation(ctx, z, is_backward); });
}

}  // namespace megatron
