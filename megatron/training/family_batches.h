// The micro-batches of a family of models, made of those that the data sets give.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "megatron/models/model_family.h"
#include "megatron/training/micro_batches.h"

namespace megatron {

/// Each rank has one.
class FamilyBatches {
 public:
  explicit FamilyBatches(ModelFamily family) : family_(std::move(family)) {}

  /// @param samples  must outlive the result. @return a view that is valid until the next call
  MicroBatches of(std::span<const MicroBatch<int64_t>> samples) {
    if (!family_.make_batch) return samples;
    made_.clear();
    for (const MicroBatch<int64_t>& batch : samples) made_.push_back(family_.make_batch(batch, family_.options));
    return made_;
  }

 private:
  ModelFamily family_;
  std::vector<OwnedBatch> made_;
};

}  // namespace megatron
