// Multi-latent attention over latent vectors: the projections from them to keys and values move to the queries and to
// the result. For generation; nothing is recorded. Source: DeepSeek-V2 (arXiv:2405.04434), section 2.1.2.
#pragma once

#include "megatron/ops/latent_heads.h"

namespace megatron {

/// Queries for latent vectors: per head the part without position times the rows of `weight` that make keys, then the
/// rotated part.
/// @param query   [s, b, n, sizes.query()].
/// @param weight  [n * (sizes.without_position + sizes.value), num_latent]: per head the rows of keys, then of values.
/// @return        [s, b, n, num_latent + sizes.rotated]
Tensor absorbed_query(const Context& ctx, const Tensor& query, Parameter& weight, const LatentHeadSizes& sizes);

/// The result of attention over latent vectors times the rows of `weight` that make values.
/// @param attended  [s, b, n * num_latent]
/// @return          [s, b, n * sizes.value]
Tensor absorbed_value(const Context& ctx, const Tensor& attended, Parameter& weight, const LatentHeadSizes& sizes);

}  // namespace megatron
