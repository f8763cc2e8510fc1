// A dataset: samples by number.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// One training sample of s positions.
struct GptSample {
  std::vector<int64_t> tokens;        // [s], padding as 0
  std::vector<int64_t> labels;        // [s], the token after each position; padding as 0
  std::vector<float> loss_mask;       // [s], 1 where the label counts, else 0
  std::vector<int64_t> position_ids;  // [s], 0-based; may restart at each document
  /// Positions that start a document: position c attends to nothing before c. Ascending, within (0, s). Empty when the
  /// sample is one causal sequence. They stand for Megatron's s x s mask (--reset-attention-mask) or its cu_seqlens
  /// (--dataloader-inter-document-masking), which has 0 before and s after them.
  std::vector<int32_t> document_cuts;
  /// The member of a blend from which the sample comes; 0 without a blend.
  int32_t dataset_id = 0;
};

/// A numbered list of samples. Thread-safe after construction; reading has no state: a sample depends on its number.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of samples.
  virtual int64_t size() const = 0;
  /// Overwrites `sample` (keeping its memory) with sample `index`, 0 <= index < size().
  /// @throw DataError if the files contradict the index, or a token is not in the vocabulary.
  virtual void read(int64_t index, GptSample& sample) const = 0;
};

}  // namespace megatron
