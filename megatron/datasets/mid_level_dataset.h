// A dataset that a blend mixes: the samples of one split of one path.
#pragma once

#include "megatron/datasets/dataset.h"
#include "megatron/datasets/dataset_identity.h"

namespace megatron {

/// Megatron Core calls the members of a blend mid-level datasets.
class MidLevelDataset : public Dataset {
 public:
  /// The blend's cache files are named by a hash of this.
  virtual const GptDatasetIdentity& identity() const = 0;
};

}  // namespace megatron
