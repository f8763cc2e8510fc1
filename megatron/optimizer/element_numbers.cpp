#include "megatron/optimizer/element_numbers.h"

namespace megatron {

kernels::ElementNumbers element_numbers_of(const Parameter& parameter, int64_t first) {
  const ParameterOptions& options = parameter.options();
  kernels::ElementNumbers numbers{.first = first};
  if (!options.shard.cut) return numbers;
  const Shape &whole = options.shard.global_shape, &local = parameter.shape();
  const int dim = options.shard.cut->dim;
  int64_t num_inner = 1;
  for (int d = dim + 1; d < whole.rank(); ++d) num_inner *= whole[d];
  numbers.block = local[dim] * num_inner;
  numbers.whole_block = whole[dim] * num_inner;
  const std::vector<ShardRange> ranges = local_ranges(*options.shard.cut, options.shard_rank, options.num_shards);
  require<NotSupported>(ranges.size() <= numbers.runs.size(),
                        "[Optimizer] the shard of {} has {} runs of neighbours, rounding at random knows {} at most. "
                        "Give --main-params-dtype fp32 and --exp-avg-sq-dtype fp32, or the layer several weights of at "
                        "most {} sections instead of one.",
                        parameter.name(), ranges.size(), numbers.runs.size(), numbers.runs.size());
  for (size_t i = 0; i < ranges.size(); ++i)
    numbers.runs[i] = {ranges[i].local_begin * num_inner, (ranges[i].global_begin - ranges[i].local_begin) * num_inner};
  return numbers;
}

}  // namespace megatron
