// Latent vectors of the tokens that generation has seen.
#pragma once

#include "megatron/core/context.h"
#include "megatron/transformer/layer_state.h"

namespace megatron {

/// The cache of one multi-latent attention. It holds the latent vector of each token's keys and values, and the rotated
/// part of its keys, which all heads share. It grows by the rows of each forward and is never recorded.
class LatentCache : public LayerState {
 public:
  /// @param num_latent, num_rotated  elements of a token
  LatentCache(const Context& ctx, const LayerStateSizes& sizes, int64_t num_latent, int64_t num_rotated, DType dtype);

  /// Appends tokens. @param latent [s, b, num_latent]. @param rotated [s, b, num_rotated].
  /// @return [rows so far, b, 1, num_latent + num_rotated] of all of them.
  /// @throw ShapeError beyond the capacity.
  Tensor append(const Context& ctx, const Tensor& latent, const Tensor& rotated);
  int64_t num_rows() const { return num_rows_; }

 private:
  Tensor tokens_;  // [max rows, b, 1, num_latent + num_rotated]
  int64_t num_latent_, num_rows_ = 0;
};

}  // namespace megatron
