#include "megatron/kernels/layer_norm.h"

#include "megatron/kernels/cpu/norm.h"

namespace megatron::kernels {

void layer_norm_forward(const CpuStream& stream, const LayerNormForwardArgs& args) {
  norm_forward(stream, {.kind = NormKind::kLayer,
                        .x = args.x,
                        .residual = args.residual,
                        .gamma = args.gamma,
                        .beta = args.beta,
                        .residual_out = args.residual_out,
                        .y = args.y,
                        .mean = args.mean,
                        .rstd = args.rstd,
                        .eps = args.eps,
                        .zero_centered_gamma = args.zero_centered_gamma});
}

void layer_norm_backward(const CpuStream& stream, const LayerNormBackwardArgs& args) {
  norm_backward(stream, {.kind = NormKind::kLayer,
                         .x = args.x,
                         .gamma = args.gamma,
                         .mean = args.mean,
                         .rstd = args.rstd,
                         .dy = args.dy,
                         .dresidual = args.dresidual,
                         .dx = args.dx,
                         .dgamma = args.dgamma,
                         .dbeta = args.dbeta,
                         .accumulate = args.accumulate,
                         .zero_centered_gamma = args.zero_centered_gamma,
                         .workspace = args.workspace});
}

}  // namespace megatron::kernels
