// Operands for a matmul with a given key.
#pragma once

#include <vector>

#include "megatron/core/context.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/kernels/matmul.h"

namespace megatron {

/// Random numbers with the shapes, strides and alignments of a key, and the workspace that the device needs.
struct ProductOperands {
  kernels::MatmulArgs args;
  std::vector<Tensor> tensors;  // own the memory of `args`
};
ProductOperands product_operands(const Context& ctx, const kernels::MatmulKey& key);

}  // namespace megatron
