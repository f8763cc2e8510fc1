// Keys and values of the tokens that generation has seen.
#pragma once

#include "megatron/core/context.h"
#include "megatron/transformer/layer_state.h"

namespace megatron {

/// The cache of one attention. It grows by the rows of each forward and is never recorded.
class KeyValueCache : public LayerState {
 public:
  /// @param key_shape, value_shape  [max rows, b, g, d] of this rank's heads; the last dimensions may differ.
  KeyValueCache(const Context& ctx, const Shape& key_shape, const Shape& value_shape, DType dtype);

  struct Filled {
    Tensor key, value;  // [rows so far, b, g, d]
  };
  /// Adds `key` and `value`, of s rows, behind the rows so far and gives all of them.
  /// @throw ShapeError beyond the capacity.
  Filled append(const Context& ctx, const Tensor& key, const Tensor& value);
  int64_t num_rows() const { return num_rows_; }

 private:
  Tensor key_, value_;
  int64_t num_rows_ = 0;
};

}  // namespace megatron
