// The documents of a global batch, in host memory of every data- and context-parallel rank.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "megatron/comm/process_group_collection.h"
#include "megatron/core/context_cut.h"
#include "megatron/training/micro_batches.h"

namespace megatron {

/// A document of a sample, up to its last token with a weight in the loss: no loss depends on the tokens behind it,
/// such as the padding of conversations.
struct GlobalDocument {
  size_t sample = 0;  // number among the samples of a GlobalBatch
  int64_t global_sample = 0;
  PositionRange tokens;
};

/// The samples of all data-parallel ranks: rank by rank, and in each micro-batch by micro-batch.
class GlobalBatch {
 public:
  /// Gathers the samples of all ranks, in one collective but for its size. All ranks of dp_cp call it.
  /// @param whole  as many micro-batches of the same size on all data-parallel ranks. @throw ShapeError if they differ
  static GlobalBatch gather(const MicroBatches& whole, const ProcessGroupCollection& groups);
  /// The samples of this rank alone.
  static GlobalBatch of_one_rank(const MicroBatches& whole);

  /// Those with a token that has a weight in the loss.
  std::vector<GlobalDocument> documents() const;
  /// A micro-batch of one sample: documents one after the other, each a sequence, and padding behind the last one up to
  /// `length` tokens, with a loss mask of 0.
  OwnedBatch batch_of(std::span<const GlobalDocument> documents, int64_t length) const;
  int64_t sample_length() const { return length_; }

 private:
  explicit GlobalBatch(const MicroBatches& whole, int64_t num_ranks);
  std::string text_of(const MicroBatches& whole) const;
  void add(std::string_view text);
  int64_t global_sample(int64_t sample) const;
  std::span<const float> loss_mask() const;

  int64_t length_, num_samples_, num_batches_, num_ranks_;  // of a sample; in a micro-batch; on a rank
  std::string sequences_;                                   // their name
  std::vector<OwnedBatch::Values> tensors_;                 // [samples, length]
  std::vector<int64_t> position_ids_, num_cuts_;            // [samples, length]; of each sample
  std::vector<int32_t> cuts_;
};

}  // namespace megatron
