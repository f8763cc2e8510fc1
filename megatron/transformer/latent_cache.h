// Latent vectors of the tokens that generation has seen.
#pragma once

#include "megatron/transformer/cached_sequences.h"

namespace megatron {

/// The cache of one multi-latent attention. It holds the latent vector of each token's keys and values, and the rotated
/// part of its keys, which all heads share.
class LatentCache : public CachedSequences {
 public:
  /// @param num_latent, num_rotated  elements of a token
  LatentCache(const Context& ctx, const LayerStateSizes& sizes, int64_t num_latent, int64_t num_rotated, DType dtype);

  /// Appends tokens. @param latent [s, b, num_latent]. @param rotated [s, b, num_rotated].
  /// @return [rows so far, b, 1, num_latent + num_rotated] of all of them.
  /// @throw ShapeError beyond the capacity.
  Tensor append(const Context& ctx, const Tensor& latent, const Tensor& rotated);

 private:
  Tensor tokens_;  // [max rows, b, 1, num_latent + num_rotated]
  int64_t num_latent_;
};

}  // namespace megatron
