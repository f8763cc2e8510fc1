#include "megatron/transformer/key_value_cache.h"

namespace megatron {

KeyValueCache::KeyValueCache(const Context& ctx, const Shape& key_shape, const Shape& value_shape, DType dtype)
    : CachedSequences(key_shape[1]),
      key_(ctx.empty("cache.key", key_shape, dtype)),
      value_(ctx.empty("cache.value", value_shape, dtype)) {}

KeyValueCache::Filled KeyValueCache::append(const Context& ctx, const Tensor& key, const Tensor& value) {
  write_rows(ctx, key, key_);
  write_rows(ctx, value, value_);
  add_rows(key.size(0));
  return {rows_so_far(key_), rows_so_far(value_)};
}

}  // namespace megatron
