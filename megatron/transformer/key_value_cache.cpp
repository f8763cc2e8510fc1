#include "megatron/transformer/key_value_cache.h"

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {

KeyValueCache::KeyValueCache(const Context& ctx, const Shape& key_shape, const Shape& value_shape, DType dtype)
    : key_(ctx.empty("cache.key", key_shape, dtype)), value_(ctx.empty("cache.value", value_shape, dtype)) {}

KeyValueCache::Filled KeyValueCache::append(const Context& ctx, const Tensor& key, const Tensor& value) {
  const int64_t s = key.size(0);
  require<ShapeError>(
      num_rows_ + s <= key_.size(0),
      "[KeyValueCache] {} cached rows and {} further ones exceed the capacity of {}. Generate fewer tokens.", num_rows_,
      s, key_.size(0));
  Tensor key_rows = key_.slice(0, num_rows_, s), value_rows = value_.slice(0, num_rows_, s);
  launch(ctx, {.name = "copy"}, [&](auto& stream) {
    kernels::copy(stream, {.x = key.view(), .y = key_rows.view()});
    kernels::copy(stream, {.x = value.view(), .y = value_rows.view()});
  });
  num_rows_ += s;
  return {key_.slice(0, 0, num_rows_), value_.slice(0, 0, num_rows_)};
}

}  // namespace megatron
