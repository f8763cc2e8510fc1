// Samples of fixed length cut from shuffled documents, exactly like Megatron Core's GPTDataset.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/message_log.h"
#include "megatron/datasets/gpt_dataset_config.h"
#include "megatron/datasets/gpt_index.h"
#include "megatron/datasets/mid_level_dataset.h"
#include "megatron/datasets/token_source.h"

namespace megatron {

/// The settings in which the GPT datasets of a run differ.
struct GptDatasetPart {
  Split split = Split::kTrain;
  IndexRange sequences;
  /// Samples that are needed; the dataset may have more. nullopt is one pass over the sequences.
  std::optional<int64_t> num_samples;
  /// The text of --split and its values, for the cache's name; nullopt when each split has its own paths.
  std::optional<std::string> split_text;
  std::optional<SplitMatrix> split_matrix;
  /// Mock data: another class name, no path, and no cache unless a directory is given.
  bool mock = false;
};

/// A range of a token source's sequences as samples. The constructor builds the index or loads it from the cache.
///
/// Three defects of Megatron are fixed: a sample's loss mask never has marks of another sample, the number of
/// samples that are not dropped is counted in integers, and a split without tokens is an error instead of a hang.
class GptDataset final : public MidLevelDataset {
 public:
  /// `source` must outlive the dataset.
  /// @throw ConfigError, DataError
  GptDataset(const TokenSource& source, const GptDatasetPart& part, const GptDatasetConfig& config,
             const MessageLog& log);

  int64_t size() const override { return shuffle_index_.num_elements(); }
  void read(int64_t index, GptSample& sample) const override;
  /// Sample 0 with an empty loss mask, to fill a batch that has no sample of its own.
  void read_padding(GptSample& sample) const;

  const GptDatasetIdentity& identity() const override { return identity_; }
  int64_t num_epochs() const { return plan_.num_epochs; }

  const NpyArray& document_index() const { return document_index_; }
  const NpyArray& sample_index() const { return sample_index_; }
  const NpyArray& shuffle_index() const { return shuffle_index_; }

 private:
  void load_or_build_indices(const GptDatasetPart& part, const MessageLog& log);
  void read_tokens(int64_t index, std::vector<int64_t>& tokens, std::vector<int32_t>& part_ends) const;
  void append_part(int64_t position, int64_t offset, std::optional<int64_t> count, std::vector<int64_t>& tokens) const;
  void check_tokens(int64_t sequence, int64_t offset, std::span<const int64_t> tokens) const;
  [[noreturn]] void reject_index(const std::string& why) const;
  void cut_documents(const std::vector<int32_t>& part_ends, GptSample& sample) const;
  void apply_end_of_document(GptSample& sample) const;

  const TokenSource& source_;
  GptDatasetConfig config_;
  int64_t pad_;
  GptDatasetIdentity identity_;
  GptIndexRequest request_;
  EpochPlan plan_;
  std::string cache_files_;  // for messages
  NpyArray document_index_;
  NpyArray sample_index_;
  NpyArray shuffle_index_;
};

}  // namespace megatron
