// The batches of a run: tokenizer, data sets and loaders as the data flags ask for them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/mistakes.h"
#include "megatron/datasets/data_loader.h"
#include "megatron/datasets/dataset_builder.h"
#include "megatron/tokenizers/conversation_encoder.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/checkpoint/checkpoint_tokenizer.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// The tokenizer that the flags name. @throw as make_tokenizer.
std::unique_ptr<Tokenizer> tokenizer_of(const TokenizerConfig& config);

/// The encoder of the conversations of --sft; null without it. @throw as find_chat_template and ConversationEncoder.
/// @param tokenizer  must outlive the result
std::unique_ptr<ConversationEncoder> conversation_encoder_of(const PretrainConfig& config, const Tokenizer& tokenizer);

/// Adds what is wrong with the data flags, the files and the vocabulary that they name.
/// @param config  complete, or one whose mistakes are known already
/// @return the tokenizer that the flags name; null if there is none, which is a mistake
std::unique_ptr<Tokenizer> check_data_and_tokenizer(PretrainConfig config, Mistakes& mistakes);

/// The files that the flags of data and tokenizer name: vocabularies, .idx and .bin files or those of conversations.
/// @throw as parse_blend, and DataError for lists that cannot be read
std::vector<std::string> input_files_of(const PretrainConfig& config);

/// Reads the micro-batches of one global batch at a time.
class BatchReader {
 public:
  BatchReader(const Dataset& dataset, std::unique_ptr<Sampler> sampler) : loader_(dataset, std::move(sampler), 2) {}
  /// @throw DataError at the end of the data.
  std::span<const MicroBatch<int64_t>> read(int64_t num_micro_batches);
  /// Fewer, or none, at the end of the data; the last micro-batch may be short.
  std::span<const MicroBatch<int64_t>> read_at_most(int64_t num_micro_batches);

 private:
  DataLoader<int64_t> loader_;
  std::vector<MicroBatch<int64_t>> batches_;
};

/// Data sets of train, validation and test, and readers on them. Thread-safe once made: ranks that are threads share
/// one.
class TrainingData {
 public:
  /// @param config  resolved. @param check_cache  see GptDatasetConfig
  /// @param tokenizer  must outlive the data if these are conversations.
  TrainingData(const PretrainConfig& config, const Tokenizer& tokenizer, const MessageLog& log,
               bool check_cache = true);

  const GptDatasets& datasets() const { return datasets_; }
  const TokenizerRecord& tokenizer() const { return tokenizer_; }
  // Readers of one data-parallel rank; each is used by one thread.
  /// Continues behind `consumed_samples`. @throw DataError if the split has no data.
  std::unique_ptr<BatchReader> train_reader(int64_t dp_rank, int64_t consumed_samples) const;
  std::unique_ptr<BatchReader> validation_reader(size_t set, int64_t dp_rank, int64_t consumed_samples) const;
  /// All of a validation set, once (--full-validation); then test_reader() too gives all.
  std::unique_ptr<BatchReader> full_validation_reader(size_t set, int64_t dp_rank) const;
  std::unique_ptr<BatchReader> test_reader(int64_t dp_rank) const;

 private:
  std::unique_ptr<BatchReader> full_reader(const Dataset& dataset, int64_t dp_rank) const;
  DataParallelSlice train_slice(int64_t dp_rank) const;
  DataParallelSlice eval_slice(int64_t dp_rank) const;
  std::unique_ptr<Sampler> sampler(int64_t num_samples, int64_t consumed, const DataParallelSlice& slice) const;

  PretrainConfig config_;
  TokenizerRecord tokenizer_;
  std::unique_ptr<ConversationEncoder> conversations_;  // null without --sft; the data sets refer to it
  GptDatasets datasets_;
};

}  // namespace megatron
