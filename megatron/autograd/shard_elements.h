// A parameter's shard as part of the whole tensor, element by element.
#pragma once

#include <vector>

#include "megatron/autograd/parameter.h"

namespace megatron {

/// Calls f(index in the whole tensor, index in the shard) for every element of a rank's shard.
template <class F>
void for_each_shard_element(const Parameter& parameter, F&& f) {
  const ParameterOptions& options = parameter.options();
  const Shape &whole = options.shard.global_shape, &local = parameter.shape();
  std::vector<ShardRange> ranges{{0, 0, whole[0]}};
  int dim = 0;
  if (options.shard.cut) {
    dim = options.shard.cut->dim;
    ranges = local_ranges(*options.shard.cut, options.shard_rank, options.num_shards);
  }
  int64_t num_outer = 1, num_inner = 1;
  for (int d = 0; d < dim; ++d) num_outer *= whole[d];
  for (int d = dim + 1; d < whole.rank(); ++d) num_inner *= whole[d];
  for (int64_t outer = 0; outer < num_outer; ++outer)
    for (const ShardRange& range : ranges)
      for (int64_t row = 0; row < range.length; ++row)
        for (int64_t inner = 0; inner < num_inner; ++inner)
          f((outer * whole[dim] + range.global_begin + row) * num_inner + inner,
            (outer * local[dim] + range.local_begin + row) * num_inner + inner);
}

}  // namespace megatron
