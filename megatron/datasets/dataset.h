// Samples by number: what samplers, batches and loaders work on.
#pragma once

#include <cstdint>
#include <vector>

namespace megatron {

/// One training sample of s positions.
struct GptSample {
  std::vector<int64_t> tokens;        // [s], padding as 0
  std::vector<int64_t> labels;        // [s], the token after each position; padding as 0
  std::vector<float> loss_mask;       // [s], 1 where the label counts, else 0
  std::vector<int64_t> position_ids;  // [s], 0-based; restart where the options ask for it
  /// Rows that start a document of their own: row c sees nothing before c. Ascending, within (0, s). Empty when the
  /// sample is one causal sequence. They stand for Megatron's s x s mask (--reset-attention-mask) or its cu_seqlens
  /// (--dataloader-inter-document-masking), which has 0 before and s after them.
  std::vector<int32_t> document_cuts;
  /// Which member of a blend the sample comes from; 0 without a blend.
  int32_t dataset_id = 0;
};

/// A numbered list of samples. Thread-safe once made; reading has no state, so a sample depends on its number only.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Number of samples.
  virtual int64_t size() const = 0;
  /// Overwrites `sample` (keeping its memory) with sample `index`, 0 <= index < size().
  /// @throw DataError if the files do not hold what the index promises, or a token is not in the vocabulary.
  virtual void read(int64_t index, GptSample& sample) const = 0;
};

}  // namespace megatron
