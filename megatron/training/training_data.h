// The batches of a run: tokenizer, data sets and loaders as the data flags ask for them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/mistakes.h"
#include "megatron/datasets/data_loader.h"
#include "megatron/datasets/dataset_builder.h"
#include "megatron/datasets/fill_in_the_middle.h"
#include "megatron/tokenizers/conversation_encoder.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/checkpoint/checkpoint_tokenizer.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/external_data.h"
#include "megatron/training/training_phases.h"

namespace megatron {

/// The tokenizer that the flags name. @throw as make_tokenizer.
std::unique_ptr<Tokenizer> tokenizer_of(const TokenizerConfig& config);

/// The encoder of the conversations of --sft; null without it. @throw as find_chat_template and ConversationEncoder.
/// @param tokenizer  must outlive the result
std::unique_ptr<ConversationEncoder> conversation_encoder_of(const PretrainConfig& config, const Tokenizer& tokenizer);

/// Makes what changes samples with --fim-data; null without it.
/// @param tokenizer  must outlive the result. @throw ConfigError naming all tokens that it lacks
std::unique_ptr<FillInTheMiddle> fill_in_the_middle_of(const PretrainConfig& config, const Tokenizer& tokenizer);

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
  BatchReader(std::unique_ptr<BatchSource> source, int64_t consumed_samples)
      : source_(std::move(source)), consumed_samples_(consumed_samples) {}
  /// @throw DataError at the end of the data.
  std::span<const MicroBatch<int64_t>> read(int64_t num_micro_batches);
  /// Fewer, or none, at the end of the data; the last micro-batch may be short.
  std::span<const MicroBatch<int64_t>> read_at_most(int64_t num_micro_batches);

 private:
  std::unique_ptr<BatchSource> source_;
  int64_t consumed_samples_;
  std::vector<MicroBatch<int64_t>> batches_;
};

/// Data sets of train, validation and test, and readers on them. Thread-safe once made: ranks that are threads share
/// one.
class TrainingData {
 public:
  struct Options {
    bool check_cache = true;  ///< see GptDatasetConfig
    /// Training goes on behind it, which decides on the phase of --phase-transition-iterations.
    int64_t iteration = 0;
    const ExternalData* external = nullptr;  ///< of --dataloader-type external; must outlive the data
  };
  /// @param config  resolved.
  /// @param tokenizer  must outlive the data if these are conversations or with --fim-data.
  TrainingData(const PretrainConfig& config, const Tokenizer& tokenizer, const MessageLog& log, const Options& options);

  /// Empty with --dataloader-type external.
  const GptDatasets& datasets() const { return datasets_; }
  size_t num_validation_sets() const;
  bool has_test() const;
  const TokenizerRecord& tokenizer() const { return tokenizer_; }
  // Readers of one data-parallel rank; each is used by one thread.
  /// Continues behind `consumed_samples`. @throw DataError if the split has no data or they are of another phase.
  std::unique_ptr<BatchReader> train_reader(int64_t dp_rank, int64_t consumed_samples) const;
  std::unique_ptr<BatchReader> validation_reader(size_t set, int64_t dp_rank, int64_t consumed_samples) const;
  /// All of a validation set, once (--full-validation); then test_reader() too gives all.
  std::unique_ptr<BatchReader> full_validation_reader(size_t set, int64_t dp_rank) const;
  std::unique_ptr<BatchReader> test_reader(int64_t dp_rank) const;

 private:
  std::unique_ptr<BatchReader> reader(const Dataset& dataset, std::unique_ptr<Sampler> sampler) const;
  std::unique_ptr<BatchReader> external_reader(std::unique_ptr<BatchSource> source, int64_t consumed_samples,
                                               int64_t micro_batch_size) const;
  std::unique_ptr<BatchReader> full_reader(const Dataset& dataset, int64_t dp_rank) const;
  DataParallelSlice train_slice(int64_t dp_rank) const;
  DataParallelSlice eval_slice(int64_t dp_rank) const;
  std::unique_ptr<Sampler> sampler(int64_t num_samples, int64_t consumed, const DataParallelSlice& slice) const;

  PretrainConfig config_;
  const ExternalData* external_;  // null without --dataloader-type external
  std::optional<TrainingPhase> phase_;
  TokenizerRecord tokenizer_;
  std::unique_ptr<ConversationEncoder> conversations_;   // null without --sft; the data sets refer to it
  std::unique_ptr<FillInTheMiddle> fill_in_the_middle_;  // null without --fim-data; likewise
  GptDatasets datasets_;
};

}  // namespace megatron
