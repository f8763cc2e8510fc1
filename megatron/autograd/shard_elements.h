// A parameter's shard as part of the whole tensor, element by element.
#pragma once

#include "megatron/autograd/parameter.h"

namespace megatron {

/// Calls f(index in the whole tensor, index in the shard) for every element of a rank's shard.
template <class F>
void for_each_shard_element(const Parameter& parameter, F&& f) {
  const Shape whole = parameter.options().shard.global_shape.contiguous_strides();
  const Shape local = parameter.shape().contiguous_strides();
  for (const ShardBox& box : parameter.boxes()) {
    const int64_t whole_begin = element_offset(box.global.offsets, whole);
    const int64_t local_begin = element_offset(box.local_offsets, local);
    for_each_run(box.global.sizes, whole, local, [&](int64_t a, int64_t b, int64_t count) {
      for (int64_t i = 0; i < count; ++i) f(whole_begin + a + i, local_begin + b + i);
    });
  }
}

}  // namespace megatron
