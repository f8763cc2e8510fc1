#include <algorithm>

#include "megatron/bench/step_kernels.h"
#include "megatron/core/copy.h"
#include "megatron/kernels/cuda/matmul/matmul.h"
#include "megatron/kernels/grouped_matmul.h"
#include "megatron/kernels/matmul.h"

namespace megatron {
namespace {

enum class LinearPass { kForward, kDgrad, kWgrad };

/// A linear layer of all experts of a rank, y = x w^T, with as many rows for each.
struct ExpertLinear {
  std::string name;
  int64_t experts = 0, rows = 0, n = 0, k = 0;
  DType dtype = DType::kFloat32, gradient_dtype = DType::kFloat32;
  bool accumulates = true;

  int64_t end_of(int64_t expert) const { return rows * (expert + 1) / experts; }
};

constexpr double kExpertStd = 0.02;

/// x, w and y of a pass; the result is written.
struct ExpertOperands {
  ExpertOperands(const Context& ctx, const ExpertLinear& z, LinearPass pass) {
    const auto input = [&](const Shape& shape, std::string_view name) {
      return random_tensor(ctx, shape, z.dtype, kExpertStd, name);
    };
    const Shape x{z.rows, z.k}, w{z.experts, z.n, z.k}, y{z.rows, z.n};
    a = input(pass == LinearPass::kForward ? x : y, "a");
    b = input(pass == LinearPass::kWgrad ? x : w, "b");
    c = pass == LinearPass::kWgrad ? constant_tensor(ctx, w, z.gradient_dtype, 0)
                                   : ctx.empty("c", pass == LinearPass::kForward ? y : x, z.dtype);
  }
  Tensor a, b, c;
};

/// One call for all experts, which reads the offsets of their rows in device memory.
KernelCall grouped(const Context& ctx, const ExpertLinear& z, LinearPass pass) {
  ExpertOperands o(ctx, z, pass);
  Tensor offsets = ctx.empty("offsets", {z.experts + 1}, DType::kInt32);
  std::vector<int32_t> ends = {0};
  for (int64_t expert = 0; expert < z.experts; ++expert) ends.push_back(static_cast<int32_t>(z.end_of(expert)));
  write_values<int32_t>(ctx.device, ends, offsets);
  const RowGroupsView groups{std::as_const(offsets).data<int32_t>(), z.experts, z.rows};
  const ConstView a = std::as_const(o.a).view(), b = std::as_const(o.b).view();
  if (pass == LinearPass::kWgrad) {
    kernels::GroupedWgradArgs args{.a = a, .b = b, .c = o.c.view(), .groups = groups, .accumulate = z.accumulates};
    Tensor workspace = ctx.workspace("workspace", with_stream(ctx.device, [&](auto& stream) {
                                       return kernels::grouped_wgrad_workspace_bytes(stream, args);
                                     }));
    args.workspace = workspace.view();
    return [&ctx, o, offsets, workspace, args] {
      launch(ctx, {.name = "grouped_linear"}, [&](auto& stream) { kernels::grouped_wgrad(stream, args); });
    };
  }
  kernels::GroupedMatmulArgs args{
      .a = a, .b = b, .c = o.c.view(), .groups = groups, .transpose_b = pass == LinearPass::kForward};
  Tensor workspace = ctx.workspace("workspace", with_stream(ctx.device, [&](auto& stream) {
                                     return kernels::grouped_matmul_workspace_bytes(stream, args);
                                   }));
  args.workspace = workspace.view();
  return [&ctx, o, offsets, workspace, args] {
    launch(ctx, {.name = "grouped_linear"}, [&](auto& stream) { kernels::grouped_matmul(stream, args); });
  };
}

/// A matmul for each expert, whose sizes the host has to know.
KernelCall loop(const Context& ctx, const ExpertLinear& z, LinearPass pass) {
  ExpertOperands o(ctx, z, pass);
  std::vector<kernels::MatmulArgs> calls;
  int64_t bytes = 0;
  for (int64_t expert = 0, begin = 0; expert < z.experts; begin = z.end_of(expert++)) {
    const int64_t num = z.end_of(expert) - begin;
    if (num == 0) continue;
    const auto rows = [&](const Tensor& x) { return x.slice(0, begin, num); };
    const auto matrix = [&](const Tensor& w) { return w.slice(0, expert, 1).reshape({z.n, z.k}); };
    const Tensor a = rows(o.a), b = pass == LinearPass::kWgrad ? rows(o.b) : matrix(o.b);
    Tensor c = pass == LinearPass::kWgrad ? matrix(o.c) : rows(o.c);
    calls.push_back({.a = a.view(),
                     .b = b.view(),
                     .c = c.view(),
                     .transpose_a = pass == LinearPass::kWgrad,
                     .transpose_b = pass == LinearPass::kForward,
                     .accumulate = pass == LinearPass::kWgrad && z.accumulates});
    bytes = std::max(bytes, with_stream(ctx.device, [&](auto& stream) {
                       return kernels::matmul_workspace_bytes(stream, calls.back());
                     }));
  }
  Tensor workspace = ctx.workspace("workspace", bytes);
  for (kernels::MatmulArgs& args : calls)
    if (workspace.defined()) args.workspace = workspace.view();
  return [&ctx, o, workspace, calls] {
    launch(ctx, {.name = "matmul"}, [&](auto& stream) {
      for (const kernels::MatmulArgs& args : calls) kernels::matmul(stream, args);
    });
  };
}

/// The router's matmuls in the dtypes of its op (ops/router_logits.h): gradients of fp32 logits are three terms in
/// bf16, side by side.
std::vector<KernelCase> router_cases(const StepShapes& z) {
  const DType params = z.model.params_dtype, router = params == DType::kFloat64 ? params : z.model.moe->router_dtype;
  LinearShape shape{
      .name = "router", .m = z.rows, .n = z.model.moe->num_experts, .k = z.h, .accumulates = z.num_microbatches > 1};
  if (params != DType::kBFloat16 || router != DType::kFloat32) return linear_cases(shape, router, router);
  std::vector<KernelCase> cases = linear_cases(shape, params, router);
  shape.n *= 3;
  shape.accumulates = false;
  const std::vector<KernelCase> of_terms = linear_cases(shape, params, router);
  std::ranges::copy(of_terms.begin() + 1, of_terms.end(), cases.begin() + 1);
  return cases;
}

double product(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

std::vector<KernelCase> cases_of(const ExpertLinear& z, double calls, bool is_loop) {
  std::vector<KernelCase> cases;
  const auto size = static_cast<double>(size_of(z.dtype));
  const double rows = (product(z.rows, z.k) + product(z.rows, z.n)) * size;
  const double matrices = product(z.experts * z.n, z.k);
  for (const auto& [pass, name] :
       {std::pair{LinearPass::kForward, "forward"}, {LinearPass::kDgrad, "dgrad"}, {LinearPass::kWgrad, "wgrad"}}) {
    KernelCase kernel{.name = fmt::format("{} {}{}", z.name, name, is_loop ? ", loop" : ""),
                      .kind = KernelKind::kProduct,
                      .calls = calls,
                      .operations = 2 * product(z.rows, z.n) * static_cast<double>(z.k)};
    const double of_gradient = static_cast<double>(size_of(z.gradient_dtype)) * (z.accumulates ? 2 : 1);
    kernel.bytes = rows + matrices * (pass == LinearPass::kWgrad ? of_gradient : size);
    kernel.prepare = [z, pass = pass, is_loop](const Context& ctx) {
      return is_loop ? loop(ctx, z, pass) : grouped(ctx, z, pass);
    };
    cases.push_back(std::move(kernel));
  }
  return cases;
}

std::vector<KernelCase> cases_of(const StepShapes& z, double calls, bool is_loop) {
  const int64_t f = z.experts.f;
  std::vector<KernelCase> cases;
  for (const auto& [name, n, k] :
       {std::tuple{"experts fc1", z.model.gated_linear_unit ? 2 * f : f, z.h}, {"experts fc2", z.h, f}})
    std::ranges::move(cases_of({.name = name,
                                .experts = z.experts.num,
                                .rows = z.experts.rows,
                                .n = n,
                                .k = k,
                                .dtype = z.model.params_dtype,
                                .gradient_dtype = z.gradient_dtype,
                                .accumulates = z.num_microbatches > 1},
                               calls, is_loop),
                      std::back_inserter(cases));
  return cases;
}

}  // namespace

std::vector<KernelCase> expert_product_cases(const StepShapes& z, const StageParts& stage) {
  if (stage.num_experts == 0) return {};
  const auto calls = static_cast<double>(stage.num_experts * z.num_microbatches);
  std::vector<KernelCase> cases = router_cases(z);
  for (KernelCase& kernel : cases) kernel.calls = calls;
  std::ranges::move(cases_of(z, calls, false), std::back_inserter(cases));
  return cases;
}

std::vector<KernelCase> expert_loop_cases(const StepShapes& z, const StageParts& stage) {
  return stage.num_experts == 0 ? std::vector<KernelCase>() : cases_of(z, 0, true);
}

}  // namespace megatron
