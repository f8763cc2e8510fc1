#include "megatron/core/shard_spec.h"

#include <algorithm>
#include <span>

namespace megatron {
namespace {

/// Rows [global_begin, global_begin + length) of a whole dimension lie at local_begin of a rank's shard.
struct Range {
  int64_t global_begin = 0, local_begin = 0, length = 0;
  bool is_owner = true;
};

std::span<const ShardAxis> axes_of(ShardGrid grid) {
  static constexpr ShardAxis kDense[] = {ShardAxis::kTensor};
  static constexpr ShardAxis kExpert[] = {ShardAxis::kExpert, ShardAxis::kExpertTensor};
  if (grid == ShardGrid::kDense) return kDense;
  return kExpert;
}

/// Returns a rank's part of a dimension that is cut, in local order.
std::vector<Range> ranges_of(const ShardCut& cut, const ShardPlace::Coordinate& at) {
  if (cut.num_groups % at.size == 0 && cut.num_groups > 1) {
    const int64_t length = cut.global_size() / at.size;
    return {{at.rank * length, 0, length}};
  }
  require<ConfigError>(
      at.size % cut.num_groups == 0,
      "[ShardSpec] {} groups cannot be laid out over {} ranks: one must divide the other. Change the number "
      "of query groups or the parallel size.",
      cut.num_groups, at.size);
  const int64_t ranks_per_group = at.size / cut.num_groups;
  const int64_t part = at.rank % ranks_per_group;
  std::vector<Range> ranges;
  int64_t global = at.rank / ranks_per_group * cut.group_size(), local = 0;
  for (const ShardSection& section : cut.sections) {
    require<ConfigError>(
        section.replicated || section.size % ranks_per_group == 0,
        "[ShardSpec] a section of {} rows is not divisible by {} ranks: each rank owns an equal part. Pad "
        "the size or choose another parallel size.",
        section.size, ranks_per_group);
    const int64_t length = section.replicated ? section.size : section.size / ranks_per_group;
    ranges.push_back(
        {global + (section.replicated ? 0 : part * length), local, length, !section.replicated || part == 0});
    global += section.size;
    local += length;
  }
  return ranges;
}

void check(const ShardSpec& spec) {
  for (size_t i = 0; i < spec.cuts.size(); ++i) {
    const ShardCut& cut = spec.cuts[i];
    require<ConfigError>(
        cut.dim >= 0 && cut.dim < spec.global_shape.rank() && spec.global_shape[cut.dim] == cut.global_size(),
        "[ShardSpec] the groups and sections of a cut have {} rows, dimension {} of shape {} has another number. Give "
        "the sections of the whole dimension.",
        cut.global_size(), cut.dim, spec.global_shape);
    require<ConfigError>(
        std::ranges::count(axes_of(spec.grid), cut.axis) == 1,
        "[ShardSpec] dimension {} is cut over an axis of the other grid. Dense parameters are cut over "
        "the tensor axis, experts over the expert and the expert tensor axis.",
        cut.dim);
    for (size_t other = 0; other < i; ++other)
      require<ConfigError>(spec.cuts[other].dim != cut.dim && spec.cuts[other].axis != cut.axis,
                           "[ShardSpec] dimensions {} and {} are cut over one axis, or one dimension twice: then the "
                           "shards do not make up the whole. Give each cut a dimension and an axis of its own.",
                           spec.cuts[other].dim, cut.dim);
  }
}

/// The boxes so far, each with every range of one more dimension.
std::vector<ShardBox> with_ranges(const std::vector<ShardBox>& boxes, int dim, const std::vector<Range>& ranges) {
  std::vector<ShardBox> result;
  for (const ShardBox& box : boxes)
    for (const Range& range : ranges) {
      ShardBox& part = result.emplace_back(box);
      part.global.offsets[dim] = range.global_begin;
      part.global.sizes[dim] = range.length;
      part.local_offsets[dim] = range.local_begin;
      part.is_owner = box.is_owner && range.is_owner;
    }
  return result;
}

}  // namespace

int64_t ShardCut::group_size() const {
  int64_t sum = 0;
  for (const ShardSection& section : sections) sum += section.size;
  return sum;
}

const ShardPlace::Coordinate& ShardPlace::on(ShardAxis axis) const {
  if (axis == ShardAxis::kTensor) return tensor;
  return axis == ShardAxis::kExpert ? expert : expert_tensor;
}

Shape ShardSpec::local_shape(const ShardPlace& place) const {
  Shape shape = global_shape;
  for (const ShardBox& box : shard_boxes(*this, place))  // the last box ends where the shard ends
    for (int dim = 0; dim < shape.rank(); ++dim) shape[dim] = box.local_offsets[dim] + box.global.sizes[dim];
  return shape;
}

std::vector<ShardBox> shard_boxes(const ShardSpec& spec, const ShardPlace& place) {
  check(spec);
  bool is_owner = true;
  for (const ShardAxis axis : axes_of(spec.grid))
    if (!(spec.is_of_one_expert_rank && axis == ShardAxis::kExpert) &&
        std::ranges::find(spec.cuts, axis, &ShardCut::axis) == spec.cuts.end() && place.on(axis).rank > 0)
      is_owner = false;
  const Box whole = Box::whole(spec.global_shape);
  std::vector<ShardBox> boxes{{.global = whole, .local_offsets = whole.offsets, .is_owner = is_owner}};
  std::vector<const ShardCut*> cuts;
  for (const ShardCut& cut : spec.cuts) cuts.push_back(&cut);
  std::ranges::sort(cuts, {}, &ShardCut::dim);
  for (const ShardCut* cut : cuts) boxes = with_ranges(boxes, cut->dim, ranges_of(*cut, place.on(cut->axis)));
  return boxes;
}

}  // namespace megatron
