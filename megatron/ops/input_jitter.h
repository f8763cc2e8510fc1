// Random factors on the input of a router.
#pragma once

#include <string_view>

#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout_view.h"

namespace megatron {

struct InputJitterOptions {
  double eps = 0;
  std::string_view path;  // of the router
  RowMap rows;            // without a list of rows
};

/// x times random factors, uniform in [1 - eps, 1 + eps), that are a function of (seed, path, step, global row,
/// feature) and drawn again in backward. Megatron Core: TopKRouter.apply_input_jitter.
/// @param x [..., h], floating; read, not saved.
Tensor input_jitter(Context& ctx, const Tensor& x, const InputJitterOptions& options);

}  // namespace megatron
