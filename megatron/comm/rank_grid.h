// Ranks in a grid, and the groups that its axes form.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/comm/operation.h"

namespace megatron {

/// An axis of parallelism. In the expert grid kTensor is expert tensor and kData expert data parallelism.
enum class GridAxis : uint8_t { kTensor, kContext, kExpert, kData, kPipeline };
/// "tp", "cp", "ep", "dp", "pp": as in Megatron's order strings.
std::string_view name_of(GridAxis axis);
/// The axes of "tp-cp-ep-dp-pp", fastest first; upper case counts as lower case.
/// @throw ConfigError for an unknown or repeated axis.
std::vector<GridAxis> parse_order(std::string_view order);

/// Groups of positions in a grid of these sizes (fastest first) that vary over the dimensions in `is_member` and are
/// fixed in the others. Groups and their members are in the order of the grid, fastest dimension first.
RankLists grid_groups(const std::vector<int>& sizes, const std::vector<bool>& is_member);

/// Megatron Core's HyperCommGrid over named axes: a value, the same on every rank.
class RankGrid {
 public:
  struct Axis {
    GridAxis axis;
    int size;
  };
  /// Ranks rank_offset ... of the product of sizes; the first axis varies fastest.
  /// @throw ConfigError for a repeated axis or a size below 1.
  explicit RankGrid(std::vector<Axis> axes, int rank_offset = 0);

  int num_ranks() const;
  /// 1 for an axis that the grid does not have.
  int size(GridAxis axis) const;
  /// Coordinate of a global rank; 0 for an axis that the grid does not have.
  int coordinate(int rank, GridAxis axis) const;
  /// All groups whose members differ in these axes only. The order of `axes` does not matter.
  RankLists groups(std::span<const GridAxis> axes) const;
  RankLists groups(std::initializer_list<GridAxis> axes) const { return groups(std::span(axes.begin(), axes.size())); }

 private:
  std::vector<Axis> axes_;
  int rank_offset_;
};

}  // namespace megatron
