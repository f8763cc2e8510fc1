#include "megatron/transformer/latent_cache.h"

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {

LatentCache::LatentCache(const Context& ctx, const LayerStateSizes& sizes, int64_t num_latent, int64_t num_rotated,
                         DType dtype)
    : tokens_(ctx.empty("cache.latent", {sizes.max_rows, sizes.b, 1, num_latent + num_rotated}, dtype)),
      num_latent_(num_latent) {}

Tensor LatentCache::append(const Context& ctx, const Tensor& latent, const Tensor& rotated) {
  const int64_t s = latent.size(0), b = latent.size(1), num_rotated = rotated.size(2);
  require<ShapeError>(
      num_rows_ + s <= tokens_.size(0),
      "[LatentCache] {} cached rows and {} further ones exceed the capacity of {}. Generate fewer tokens.", num_rows_,
      s, tokens_.size(0));
  const Tensor rows = tokens_.slice(0, num_rows_, s);
  Tensor latents = rows.slice(3, 0, num_latent_), others = rows.slice(3, num_latent_, num_rotated);
  launch(ctx, {.name = "copy"}, [&](auto& stream) {
    kernels::copy(stream, {.x = latent.reshape({s, b, 1, num_latent_}).view(), .y = latents.view()});
    kernels::copy(stream, {.x = rotated.reshape({s, b, 1, num_rotated}).view(), .y = others.view()});
  });
  num_rows_ += s;
  return tokens_.slice(0, 0, num_rows_);
}

}  // namespace megatron
