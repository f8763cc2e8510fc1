#include "megatron/transformer/latent_cache.h"

namespace megatron {

LatentCache::LatentCache(const Context& ctx, const LayerStateSizes& sizes, int64_t num_latent, int64_t num_rotated,
                         DType dtype)
    : CachedSequences(sizes.b),
      tokens_(ctx.empty("cache.latent", {sizes.max_rows, sizes.b, 1, num_latent + num_rotated}, dtype)),
      num_latent_(num_latent) {}

Tensor LatentCache::append(const Context& ctx, const Tensor& latent, const Tensor& rotated) {
  const int64_t s = latent.size(0), b = latent.size(1), num_rotated = rotated.size(2);
  write_rows(ctx, latent.reshape({s, b, 1, num_latent_}), tokens_.slice(3, 0, num_latent_));
  write_rows(ctx, rotated.reshape({s, b, 1, num_rotated}), tokens_.slice(3, num_latent_, num_rotated));
  add_rows(s);
  return rows_so_far(tokens_);
}

}  // namespace megatron
