// Common code of RMS and layer normalisation: y = (z - mean) * rstd * gamma + beta over rows, mean 0 for RMS.
#pragma once

#include "megatron/core/stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

enum class NormKind { kRms, kLayer };

/// The fields have the meaning of RmsNormForwardArgs and LayerNormForwardArgs.
struct NormForwardArgs {
  NormKind kind;
  ConstView x, residual, gamma, beta;
  View residual_out, y, mean, rstd;
  double eps;
  bool zero_centered_gamma;
};
void norm_forward(const CpuStream& stream, const NormForwardArgs& args);

struct NormBackwardArgs {
  NormKind kind;
  ConstView x, gamma, mean, rstd, dy, dresidual;
  View dx, dgamma, dbeta;
  bool accumulate, zero_centered_gamma;
  View workspace;
};
void norm_backward(const CpuStream& stream, const NormBackwardArgs& args);

}  // namespace megatron::kernels
