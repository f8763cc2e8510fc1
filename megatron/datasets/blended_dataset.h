// Several datasets mixed into one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/message_log.h"
#include "megatron/datasets/blend_index.h"
#include "megatron/datasets/mid_level_dataset.h"

namespace megatron {

/// Draws from its members in proportion to their weights, each member's samples in its own order, without randomness.
/// Source: Megatron Core, BlendedDataset.
class BlendedDataset final : public Dataset {
 public:
  struct Options {
    Split split = Split::kTrain;
    /// One per member; nullopt takes the members' sizes.
    std::optional<std::vector<double>> weights;
    /// Samples of the blend; nullopt is every sample of every member once, and needs weights to be nullopt.
    std::optional<int64_t> size;
    /// For the cache and messages, as in GptDatasetConfig. No directory: no cache.
    std::string path_to_cache;
    bool write_cache = true;
    double mid_level_dataset_surplus = 0;
  };

  /// @throw ConfigError for a weight that is not positive, a member without samples in an unweighted blend, too many
  /// members, or a member that has fewer samples than the blend draws from it.
  BlendedDataset(std::vector<std::unique_ptr<MidLevelDataset>> members, const Options& options, const MessageLog& log);

  int64_t size() const override { return index_.dataset_index.num_elements(); }
  void read(int64_t index, GptSample& sample) const override;

  const BlendIdentity& identity() const { return identity_; }
  const std::vector<std::unique_ptr<MidLevelDataset>>& members() const { return members_; }
  const BlendIndex& index() const { return index_; }

 private:
  void check_members(const Options& options) const;
  void load_or_build_index(const Options& options, const MessageLog& log);
  void check_demand(const Options& options) const;

  std::vector<std::unique_ptr<MidLevelDataset>> members_;
  BlendIdentity identity_;
  BlendIndex index_;
  std::string cache_files_;  // for messages
};

}  // namespace megatron
