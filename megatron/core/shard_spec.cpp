#include "megatron/core/shard_spec.h"

namespace megatron {

int64_t ShardCut::group_size() const {
  int64_t sum = 0;
  for (const ShardSection& section : sections) sum += section.size;
  return sum;
}

std::vector<ShardRange> local_ranges(const ShardCut& cut, int64_t rank, int64_t num_ranks) {
  if (cut.num_groups % num_ranks == 0 && cut.num_groups > 1) {
    const int64_t length = cut.global_size() / num_ranks;
    return {{rank * length, 0, length}};
  }
  require<ConfigError>(
      num_ranks % cut.num_groups == 0,
      "[ShardSpec] {} groups cannot be laid out over {} ranks: one must divide the other. Change the number "
      "of query groups or the parallel size.",
      cut.num_groups, num_ranks);
  const int64_t ranks_per_group = num_ranks / cut.num_groups;
  const int64_t part = rank % ranks_per_group;
  std::vector<ShardRange> ranges;
  int64_t global = rank / ranks_per_group * cut.group_size(), local = 0;
  for (const ShardSection& section : cut.sections) {
    require<ConfigError>(
        section.replicated || section.size % ranks_per_group == 0,
        "[ShardSpec] a section of {} rows is not divisible by {} ranks: each rank owns an equal part. Pad "
        "the size or choose another parallel size.",
        section.size, ranks_per_group);
    const int64_t length = section.replicated ? section.size : section.size / ranks_per_group;
    ranges.push_back({global + (section.replicated ? 0 : part * length), local, length});
    global += section.size;
    local += length;
  }
  return ranges;
}

int64_t local_size(const ShardCut& cut, int64_t num_ranks) {
  int64_t sum = 0;
  for (const ShardRange& range : local_ranges(cut, 0, num_ranks)) sum += range.length;
  return sum;
}

bool is_on_lower_rank(const ShardCut& cut, const ShardRange& range, int64_t rank, int64_t num_ranks) {
  // A replicated section is whole on each of its ranks: who begins where the range begins has all of it.
  for (int64_t lower = 0; lower < rank; ++lower)
    for (const ShardRange& other : local_ranges(cut, lower, num_ranks))
      if (other.global_begin == range.global_begin) return true;
  return false;
}

Shape ShardSpec::local_shape(int64_t num_ranks) const {
  Shape shape = global_shape;
  if (cut) shape[cut->dim] = local_size(*cut, num_ranks);
  return shape;
}

}  // namespace megatron
