// Conversations as samples of fixed length, exactly like Megatron's SFTDataset.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/jsonl_rows.h"
#include "megatron/datasets/mid_level_dataset.h"
#include "megatron/tokenizers/conversation_encoder.h"

namespace megatron {

/// The contents of one row; they do not depend on the sequence length.
struct SftRow {
  int64_t num_conversations = 0, num_tokens = 0;
  int64_t num_targets = 0;  ///< tokens that are trained
};
/// @throw DataError, NotSupported if the row is no conversation, or the encoder refuses it.
SftRow read_sft_row(std::string_view row, const ConversationEncoder& encoder);

/// A range of rows {"messages": [{"role": ..., "content": ...}, ...]} as samples (--sft). A row is one sample: its
/// conversations, each of which begins at a system message, stand one after the other as separate documents; what does
/// not fit is left out, and what remains free is padding. Rows are taken in the order of the file, again from the
/// start when they are not enough. Only tokens that the encoder marks are trained.
class SftDataset final : public MidLevelDataset {
 public:
  /// @param part  its sequences are rows. Without a number of samples it has one for each row.
  /// @param config  with `conversations`.
  /// `rows` and what `config` points to must outlive the dataset.
  /// @throw DataError if samples are needed of no row.
  SftDataset(const JsonlRows& rows, const GptDatasetPart& part, const GptDatasetConfig& config);

  int64_t size() const override { return num_samples_; }
  /// @throw DataError "PATH:LINE: ..." for a row that is no conversation.
  void read(int64_t index, GptSample& sample) const override;
  const GptDatasetIdentity& identity() const override { return identity_; }

 private:
  struct Pack;
  Pack pack_row(std::string_view row) const;

  const JsonlRows& rows_;
  IndexRange range_;
  int64_t num_samples_, sequence_length_, context_parallel_size_;
  const ConversationEncoder& encoder_;
  GptDatasetIdentity identity_;
};

}  // namespace megatron
