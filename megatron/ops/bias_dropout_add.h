// Dropout, with the bias before and the residual after it.
#pragma once

#include <string_view>

#include "megatron/autograd/tape.h"
#include "megatron/core/sequence_layout_view.h"

namespace megatron {

struct DropoutOptions {
  double rate = 0;
  std::string_view path;  // names the draw: module path and tensor
  RowMap rows;
  Tensor row_list;            // [rows] int32; may be undefined: RowMap::list, kept for backward (routed rows)
  int64_t first_feature = 0;  // for a column shard
};

/// y = dropout(x). The mask is a function of (seed, path, step, global row, feature) and recomputed in backward.
Tensor dropout(Context& ctx, const Tensor& x, const DropoutOptions& options);

/// y = residual + dropout(x + bias).
/// @param x         [..., h], floating; read, not saved.
/// @param bias      [h]; may be null. B computes its gradient too.
/// @param residual  shape of x, with the same bound; y has its dtype, so a residual stream may be fp32 under bf16.
/// @throw ShapeError if the shapes or bounds differ, or the bias is not as wide as a row.
Tensor bias_dropout_add(Context& ctx, const Tensor& x, Parameter* bias, const Tensor& residual,
                        const DropoutOptions& options);

}  // namespace megatron
