// Keys and values of the tokens that generation has seen.
#pragma once

#include "megatron/transformer/cached_sequences.h"

namespace megatron {

/// The cache of one attention.
class KeyValueCache : public CachedSequences {
 public:
  /// @param key_shape, value_shape  [max rows, sequences, g, d] of this rank's heads; the last dimensions may differ.
  KeyValueCache(const Context& ctx, const Shape& key_shape, const Shape& value_shape, DType dtype);

  struct Filled {
    Tensor key, value;  // [rows so far, b, g, d]
  };
  /// Adds `key` and `value`, of s rows, behind the rows so far and gives all of them.
  /// @throw ShapeError beyond the capacity.
  Filled append(const Context& ctx, const Tensor& key, const Tensor& value);

 private:
  Tensor key_, value_;
};

}  // namespace megatron
