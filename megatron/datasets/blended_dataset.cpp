#include "megatron/datasets/blended_dataset.h"

#include <fmt/core.h>

#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/datasets/index_cache.h"

namespace megatron {
namespace {

constexpr size_t kMaxMembers = std::numeric_limits<int16_t>::max() - 1;

std::string path_of(const MidLevelDataset& member) { return member.identity().dataset_path.value_or("mock data"); }

BlendIdentity make_identity(const std::vector<std::unique_ptr<MidLevelDataset>>& members,
                            const BlendedDataset::Options& options) {
  BlendIdentity identity;
  std::vector<int64_t> sizes;
  for (const auto& member : members) {
    identity.datasets.push_back(member->identity());
    sizes.push_back(member->size());
  }
  identity.split = options.split;
  identity.size = options.size;
  if (!options.size.has_value()) {
    identity.weights = sizes;
  } else {
    identity.weights = normalize_weights(options.weights.has_value() ? *options.weights
                                                                     : std::vector<double>(sizes.begin(), sizes.end()));
  }
  return identity;
}

// Builds the index that the kind of the weights asks for.
struct BuildIndex {
  int64_t size;  // samples of the blend; sample counts give it themselves
  BlendIndex operator()(const std::vector<double>& fractions) const { return build_blending_index(fractions, size); }
  BlendIndex operator()(const std::vector<int64_t>& counts) const { return build_exhaustive_blending_index(counts); }
};

}  // namespace

BlendedDataset::BlendedDataset(std::vector<std::unique_ptr<MidLevelDataset>> members, const Options& options,
                               const MessageLog& log)
    : members_(std::move(members)), index_{NpyArray(NpyDtype::kInt16, {0}), NpyArray(NpyDtype::kInt64, {0})} {
  check_members(options);
  identity_ = make_identity(members_, options);
  load_or_build_index(options, log);
  check_demand(options);
}

void BlendedDataset::check_members(const Options& options) const {
  const std::string_view split = name_of(options.split);
  require<ConfigError>(!members_.empty() && members_.size() <= kMaxMembers,
                       "a blend of {} datasets was requested; 1 to {} are possible", members_.size(), kMaxMembers);
  require<ConfigError>(!options.weights.has_value() || options.weights->size() == members_.size(),
                       "the {} blend has {} datasets and {} weights. Give each path one weight, or no weights at all.",
                       split, members_.size(), options.weights.has_value() ? options.weights->size() : 0);
  require<ConfigError>(!options.weights.has_value() || options.size.has_value(),
                       "the {} blend has weights, but its number of samples is not set (one pass over the data, which "
                       "--full-validation requests). Leave out the weights, or set the number of samples.",
                       split);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (options.weights.has_value()) {
      require<ConfigError>((*options.weights)[i] > 0,
                           "{} has weight {} in the blend; weights must be above zero. Leave the dataset out instead.",
                           path_of(*members_[i]), (*options.weights)[i]);
    } else {
      require<ConfigError>(
          members_[i]->size() > 0,
          "{} has no sample in the {} split, so it cannot be part of an unweighted blend. Leave it out, give it more "
          "data, or give the split a larger share.",
          path_of(*members_[i]), split);
    }
  }
}

void BlendedDataset::load_or_build_index(const Options& options, const MessageLog& log) {
  int64_t size = 0;
  for (const auto& member : members_) size += member->size();
  if (options.size.has_value()) size = *options.size;

  CacheEntry entry;
  entry.directory = options.path_to_cache;
  entry.description = identity_.description();
  entry.stem = cache_stem(entry.description, "BlendedDataset", options.split);
  entry.arrays = {{"dataset_index", {size}}, {"dataset_sample_index", {size}}};
  entry.write = options.write_cache;
  cache_files_ = entry.directory.empty() ? "" : entry.path_of("*").string();
  const auto build = [&] {
    BlendIndex index = std::visit(BuildIndex{size}, identity_.weights);
    std::vector<NpyArray> arrays;
    arrays.push_back(std::move(index.dataset_index));
    arrays.push_back(std::move(index.dataset_sample_index));
    return arrays;
  };
  std::vector<NpyArray> arrays =
      load_or_build(entry, fmt::format("BlendedDataset {} indices", name_of(options.split)), build, log);
  index_ = {std::move(arrays[0]), std::move(arrays[1])};
}

void BlendedDataset::check_demand(const Options& options) const {
  std::vector<int64_t> demand(members_.size(), 0);
  for (int64_t i = 0; i < size(); ++i) {
    const int64_t member = index_.dataset_index[i];
    const int64_t sample = index_.dataset_sample_index[i];
    require<DataError>(
        member >= 0 && member < static_cast<int64_t>(members_.size()) &&
            sample == demand[static_cast<size_t>(member)]++,
        "the blend index names sample {} of dataset {} of {}: the cached indices {} are damaged or belong to other "
        "data. Delete them; they are built again.",
        sample, member, members_.size(), cache_files_);
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    require<ConfigError>(demand[i] <= members_[i]->size(),
                         "the {} blend oversamples {}: it takes {} samples of it, which has {}. Raise "
                         "--mid-level-dataset-surplus from {} two- or tenfold.",
                         name_of(options.split), path_of(*members_[i]), demand[i], members_[i]->size(),
                         options.mid_level_dataset_surplus);
  }
}

void BlendedDataset::read(int64_t index, GptSample& sample) const {
  require<DataError>(index >= 0 && index < size(), "sample {} of a blend was requested; there are {}", index, size());
  const int64_t member = index_.dataset_index[index];
  members_[static_cast<size_t>(member)]->read(index_.dataset_sample_index[index], sample);
  sample.dataset_id = static_cast<int32_t>(member);
}

}  // namespace megatron
