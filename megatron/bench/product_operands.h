// Operands for a matrix product of which the key is known.
#pragma once

#include <vector>

#include "megatron/core/context.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/kernels/matmul.h"

namespace megatron {

/// Random numbers with the shapes, strides and alignments of a key; the product's workspace as the device wants it.
struct ProductOperands {
  kernels::MatmulArgs args;
  std::vector<Tensor> tensors;  // own what `args` sees
};
ProductOperands product_operands(const Context& ctx, const kernels::MatmulKey& key);

}  // namespace megatron
