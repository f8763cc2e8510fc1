#include "megatron/bench/step_kernels.h"
#include "megatron/bench/transformer_engine.h"
#include "megatron/kernels/layer_norm.h"
#include "megatron/kernels/rms_norm.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// Rows of normalised vectors.
struct NormShape {
  std::string name;
  int64_t rows, size;
  bool is_layer_norm;
  DType dtype, y_dtype, gradient_dtype;
  bool has_residual;  // backward adds the gradient of the residual
};

OpNote note_of(bool is_layer_norm, const Tensor& x) {
  return {.name = is_layer_norm ? "layer_norm" : "rms_norm", .shape = &x.shape()};
}

struct ForwardOperands {
  ForwardOperands(const Context& ctx, const NormShape& z)
      : x(random_tensor(ctx, {z.rows, z.size}, z.dtype)),
        gamma(constant_tensor(ctx, {z.size}, z.y_dtype, 1)),
        beta(constant_tensor(ctx, {z.size}, z.y_dtype, 0)),
        outputs(ctx, z) {}
  Tensor x, gamma, beta;
  struct Outputs {
    Outputs(const Context& ctx, const NormShape& z)
        : y(ctx.empty("y", {z.rows, z.size}, z.y_dtype)),
          mean(ctx.empty("mean", {z.rows}, statistics_dtype(z.dtype))),
          rstd(ctx.empty_like("rstd", mean)) {}
    Tensor y, mean, rstd;
  } outputs;
};

KernelCall norm_forward(const Context& ctx, const NormShape& z, const ForwardOperands& o) {
  return [x = o.x, gamma = o.gamma, beta = o.beta, out = o.outputs, &ctx, is_layer_norm = z.is_layer_norm]() mutable {
    launch(ctx, note_of(is_layer_norm, x), [&](auto& stream) {
      if (is_layer_norm)
        kernels::layer_norm_forward(stream, {.x = x.view(),
                                             .gamma = gamma.view(),
                                             .beta = beta.view(),
                                             .y = out.y.view(),
                                             .mean = out.mean.view(),
                                             .rstd = out.rstd.view()});
      else
        kernels::rms_norm_forward(stream,
                                  {.x = x.view(), .gamma = gamma.view(), .y = out.y.view(), .rstd = out.rstd.view()});
    });
  };
}

PeerCall forward_peer(const Context& ctx, const TransformerEngine& engine, const NormShape& z) {
  const ForwardOperands o(ctx, z);
  const ForwardOperands::Outputs out(ctx, z);
  const EngineTensor x(engine, o.x), gamma(engine, o.gamma), beta(engine, o.beta), y(engine, out.y),
      mean(engine, out.mean), rstd(engine, out.rstd);
  const auto run = [=, &ctx, &engine, sms = engine.num_multiprocessors(),
                    is_layer_norm = z.is_layer_norm](TransformerEngine::Handle workspace) {
    constexpr float kEps = 1e-5f;
    launch_engine(ctx, [&](TransformerEngine::Stream stream) {
      if (is_layer_norm)
        engine.call().layernorm_fwd(x, gamma, beta, kEps, y, mean, rstd, workspace, sms, false, stream);
      else
        engine.call().rmsnorm_fwd(x, gamma, kEps, y, rstd, workspace, sms, false, stream);
    });
  };
  PeerCall call{.theirs = [run, workspace = engine_workspace(ctx, engine, run)] { run(workspace); },
                .ours = norm_forward(ctx, z, o),
                .results = {{"y", o.outputs.y, out.y, z.y_dtype, z.size},
                            {"rstd", o.outputs.rstd, out.rstd, DType::kFloat32, z.size}}};
  if (z.is_layer_norm) call.results.push_back({"mean", o.outputs.mean, out.mean, DType::kFloat32, z.size});
  return call;
}

struct BackwardOperands {
  BackwardOperands(const Context& ctx, const NormShape& z)
      : x(random_tensor(ctx, {z.rows, z.size}, z.dtype)),
        dy(random_tensor(ctx, {z.rows, z.size}, z.y_dtype, 1, "dy")),
        past(z.has_residual ? random_tensor(ctx, {z.rows, z.size}, z.dtype, 1, "dresidual") : Tensor()),
        gamma(constant_tensor(ctx, {z.size}, z.y_dtype, 1)),
        mean(constant_tensor(ctx, {z.rows}, statistics_dtype(z.dtype), 0)),
        rstd(constant_tensor(ctx, {z.rows}, statistics_dtype(z.dtype), 1)),
        outputs(ctx, z, z.gradient_dtype) {}
  Tensor x, dy, past, gamma, mean, rstd;
  struct Outputs {
    Outputs(const Context& ctx, const NormShape& z, DType gradient_dtype)
        : dx(ctx.empty("dx", {z.rows, z.size}, z.dtype)),
          dgamma(constant_tensor(ctx, {z.size}, gradient_dtype, 0)),
          dbeta(constant_tensor(ctx, {z.size}, gradient_dtype, 0)) {}
    Tensor dx, dgamma, dbeta;
  } outputs;
};

KernelCall norm_backward(const Context& ctx, const NormShape& z, const BackwardOperands& operands) {
  Tensor workspace = ctx.workspace("workspace", kernels::layer_norm_backward_workspace_bytes(z.rows, z.size, z.dtype));
  return [=, &ctx, o = operands, is_layer_norm = z.is_layer_norm]() mutable {
    const ConstView passed = o.past.defined() ? std::as_const(o.past).view() : ConstView{};
    launch(ctx, note_of(is_layer_norm, o.x), [&](auto& stream) {
      if (is_layer_norm)
        kernels::layer_norm_backward(stream, {.x = o.x.view(),
                                              .gamma = o.gamma.view(),
                                              .mean = o.mean.view(),
                                              .rstd = o.rstd.view(),
                                              .dy = o.dy.view(),
                                              .dresidual = passed,
                                              .dx = o.outputs.dx.view(),
                                              .dgamma = o.outputs.dgamma.view(),
                                              .dbeta = o.outputs.dbeta.view(),
                                              .accumulate = true,
                                              .workspace = workspace.view()});
      else
        kernels::rms_norm_backward(stream, {.x = o.x.view(),
                                            .gamma = o.gamma.view(),
                                            .rstd = o.rstd.view(),
                                            .dy = o.dy.view(),
                                            .dresidual = passed,
                                            .dx = o.outputs.dx.view(),
                                            .dgamma = o.outputs.dgamma.view(),
                                            .accumulate = true,
                                            .workspace = workspace.view()});
    });
  };
}

/// @param shape  our shape; its layer norm does not add a residual's gradient
PeerCall backward_peer(const Context& ctx, const TransformerEngine& engine, const NormShape& shape) {
  NormShape z = shape;
  z.has_residual = z.has_residual && !z.is_layer_norm;
  const BackwardOperands o(ctx, z);
  const BackwardOperands::Outputs out(ctx, z, z.y_dtype);
  const EngineTensor x(engine, o.x), dy(engine, o.dy), past(engine, o.past), gamma(engine, o.gamma),
      mean(engine, o.mean), rstd(engine, o.rstd), dx(engine, out.dx), dgamma(engine, out.dgamma),
      dbeta(engine, out.dbeta);
  const auto run = [=, &ctx, &engine, sms = engine.num_multiprocessors()](TransformerEngine::Handle workspace) {
    const TransformerEngine::Functions& call = engine.call();
    launch_engine(ctx, [&](TransformerEngine::Stream stream) {
      if (z.is_layer_norm)
        call.layernorm_bwd(dy, x, mean, rstd, gamma, dx, dgamma, dbeta, workspace, sms, false, stream);
      else if (z.has_residual)
        call.rmsnorm_bwd_add(dy, x, past, rstd, gamma, dx, dgamma, workspace, sms, false, stream);
      else
        call.rmsnorm_bwd(dy, x, rstd, gamma, dx, dgamma, workspace, sms, false, stream);
    });
  };
  PeerCall call{.theirs = [run, workspace = engine_workspace(ctx, engine, run)] { run(workspace); },
                .ours = norm_backward(ctx, z, o),
                .results = {{"dx", o.outputs.dx, out.dx, z.dtype, z.size},
                            {"dgamma", o.outputs.dgamma, out.dgamma, z.y_dtype, z.rows}}};
  if (z.is_layer_norm) call.results.push_back({"dbeta", o.outputs.dbeta, out.dbeta, z.y_dtype, z.rows});
  return call;
}

/// The note for backward.
std::string note(const NormShape& z) {
  const std::string gradients = "writes the weight's gradient, ours adds to it";
  return z.is_layer_norm && z.has_residual ? "without the residual's gradient; " + gradients : gradients;
}

/// @param calls  in a step
void add_norm(const NormShape& z, double calls, std::vector<KernelCase>& cases) {
  const auto elements = static_cast<double>(z.rows * z.size);
  const auto x = elements * static_cast<double>(size_of(z.dtype)),
             y = elements * static_cast<double>(size_of(z.y_dtype));
  add_memory_case(
      {.name = z.name + " forward",
       .calls = calls,
       .bytes = x + y,
       .prepare = [z](const Context& ctx) { return norm_forward(ctx, z, ForwardOperands(ctx, z)); },
       .peer = [z](const Context& ctx, const TransformerEngine& engine) { return forward_peer(ctx, engine, z); }},
      cases);
  add_memory_case(
      {.name = z.name + " backward",
       .calls = calls,
       .bytes = y + (z.has_residual ? 3 : 2) * x,
       .prepare = [z](const Context& ctx) { return norm_backward(ctx, z, BackwardOperands(ctx, z)); },
       .peer = [z](const Context& ctx, const TransformerEngine& engine) { return backward_peer(ctx, engine, z); },
       .peer_note = note(z)},
      cases);
}

}  // namespace

void add_norm_cases(const StepShapes& z, const StageParts& stage, std::vector<KernelCase>& cases) {
  const auto attention = static_cast<double>(stage.num_attention * z.num_microbatches);
  const auto blocks = static_cast<double>(stage.num_residual_blocks() * z.num_microbatches);
  const DType dtype = z.model.params_dtype, hidden = z.hidden_dtype();
  const bool is_layer_norm = z.model.normalization == Normalization::kLayerNorm;
  NormShape norm{.name = is_layer_norm ? "layer norm" : "rms norm", .rows = z.rows, .size = z.h};
  norm.is_layer_norm = is_layer_norm;
  norm.dtype = hidden, norm.y_dtype = dtype, norm.gradient_dtype = z.gradient_dtype;
  norm.has_residual = true;
  add_norm(norm, blocks, cases);
  norm.name = "final norm";
  norm.has_residual = false;
  add_norm(norm, stage.has_head ? static_cast<double>(z.num_microbatches) : 0, cases);
  if (!z.has_norms_of_heads()) return;
  norm.size = z.d;
  norm.is_layer_norm = is_layer_norm && z.model.qk_layernorm;
  norm.dtype = dtype;
  norm.name = "query norm", norm.rows = z.t * z.n;
  add_norm(norm, attention, cases);
  norm.name = "key norm", norm.rows = z.t * z.g;
  add_norm(norm, attention, cases);
}

}  // namespace megatron
