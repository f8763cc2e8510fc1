#include "megatron/kernels/rms_norm.h"

#include "megatron/kernels/cpu/norm.h"

namespace megatron::kernels {

void rms_norm_forward(const CpuStream& stream, const RmsNormForwardArgs& args) {
  norm_forward(stream, {.kind = NormKind::kRms,
                        .x = args.x,
                        .residual = args.residual,
                        .gamma = args.gamma,
                        .residual_out = args.residual_out,
                        .y = args.y,
                        .rstd = args.rstd,
                        .eps = args.eps,
                        .zero_centered_gamma = args.zero_centered_gamma});
}

void rms_norm_backward(const CpuStream& stream, const RmsNormBackwardArgs& args) {
  norm_backward(stream, {.kind = NormKind::kRms,
                         .x = args.x,
                         .gamma = args.gamma,
                         .rstd = args.rstd,
                         .dy = args.dy,
                         .dresidual = args.dresidual,
                         .dx = args.dx,
                         .dgamma = args.dgamma,
                         .accumulate = args.accumulate,
                         .zero_centered_gamma = args.zero_centered_gamma,
                         .workspace = args.workspace});
}

}  // namespace megatron::kernels
