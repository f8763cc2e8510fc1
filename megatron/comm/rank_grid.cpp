#include "megatron/comm/rank_grid.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::array kAxes{GridAxis::kTensor, GridAxis::kContext, GridAxis::kExpert, GridAxis::kData,
                           GridAxis::kPipeline};

/// Ranks reached by all combinations of indices in the dimensions for which is_member equals `wanted`.
std::vector<int> offsets(const std::vector<int>& sizes, const std::vector<bool>& is_member, bool wanted) {
  std::vector<int> result{0};
  int stride = 1;
  for (size_t dim = 0; dim < sizes.size(); stride *= sizes[dim++]) {
    if (is_member[dim] != wanted) continue;
    const std::vector<int> faster = result;
    for (int index = 1; index < sizes[dim]; ++index)
      for (int offset : faster) result.push_back(offset + index * stride);
  }
  return result;
}

}  // namespace

std::string_view name_of(GridAxis axis) {
  switch (axis) {
    case GridAxis::kTensor:
      return "tp";
    case GridAxis::kContext:
      return "cp";
    case GridAxis::kExpert:
      return "ep";
    case GridAxis::kData:
      return "dp";
    case GridAxis::kPipeline:
      return "pp";
  }
  return "unknown";
}

std::vector<GridAxis> parse_order(std::string_view order) {
  std::vector<GridAxis> axes;
  for (size_t begin = 0; begin <= order.size();) {
    const size_t end = std::min(order.find('-', begin), order.size());
    std::string name(order.substr(begin, end - begin));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto axis = std::find_if(kAxes.begin(), kAxes.end(), [&](GridAxis known) { return name_of(known) == name; });
    require<ConfigError>(axis != kAxes.end(), "[rank order] \"{}\" in \"{}\" is none of tp, cp, ep, dp, pp", name,
                         order);
    require<ConfigError>(std::find(axes.begin(), axes.end(), *axis) == axes.end(), "[rank order] \"{}\" repeats {}",
                         order, name);
    axes.push_back(*axis);
    begin = end + 1;
  }
  return axes;
}

RankLists grid_groups(const std::vector<int>& sizes, const std::vector<bool>& is_member) {
  const std::vector<int> members = offsets(sizes, is_member, true);
  RankLists groups;
  for (int first : offsets(sizes, is_member, false)) {
    groups.push_back(members);
    for (int& rank : groups.back()) rank += first;
  }
  return groups;
}

RankGrid::RankGrid(std::vector<Axis> axes, int rank_offset) : axes_(std::move(axes)), rank_offset_(rank_offset) {
  for (size_t i = 0; i < axes_.size(); ++i) {
    require<ConfigError>(axes_[i].size >= 1, "[RankGrid] {} has size {}", name_of(axes_[i].axis), axes_[i].size);
    for (size_t j = 0; j < i; ++j)
      require<ConfigError>(axes_[i].axis != axes_[j].axis, "[RankGrid] {} is given twice", name_of(axes_[i].axis));
  }
}

int RankGrid::num_ranks() const {
  int product = 1;
  for (const Axis& axis : axes_) product *= axis.size;
  return product;
}

int RankGrid::size(GridAxis axis) const {
  for (const Axis& own : axes_)
    if (own.axis == axis) return own.size;
  return 1;
}

int RankGrid::coordinate(int rank, GridAxis axis) const {
  int rest = rank - rank_offset_;
  for (const Axis& own : axes_) {
    if (own.axis == axis) return rest % own.size;
    rest /= own.size;
  }
  return 0;
}

RankLists RankGrid::groups(std::span<const GridAxis> asked) const {
  std::vector<int> sizes;
  std::vector<bool> is_member;
  for (const Axis& own : axes_) {
    sizes.push_back(own.size);
    is_member.push_back(std::find(asked.begin(), asked.end(), own.axis) != asked.end());
  }
  RankLists groups = grid_groups(sizes, is_member);
  for (auto& ranks : groups)
    for (int& rank : ranks) rank += rank_offset_;
  return groups;
}

}  // namespace megatron
