// Options of GPT datasets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/base/mapped_file.h"
#include "megatron/datasets/sequence_counts.h"
#include "megatron/datasets/split.h"
#include "megatron/datasets/tokenizer_facts.h"

namespace megatron {

class ConversationEncoder;
class FillInTheMiddle;

/// Options that all GPT datasets of a run share. Names are Megatron Core's (GPTDatasetConfig).
struct GptDatasetConfig {
  int64_t sequence_length = 0;
  /// Seeds the order of documents and samples; in [0, 2^32 - 1]. All splits and blend members use it alike.
  int64_t random_seed = 1234;
  TokenizerFacts tokenizer;

  /// After each end-of-document token, positions start again at 0.
  bool reset_position_ids = false;
  /// Positions after an end-of-document token do not attend to positions before it.
  bool reset_attention_mask = false;
  /// Positions whose input is an end-of-document token are not trained.
  bool eod_mask_loss = false;
  /// Every document of a sample is a sequence of its own, whatever its tokens are; positions restart as well.
  bool inter_document_masking = false;
  /// A padding token that is also another special token masks that one. Off: no token of the data counts as padding.
  bool allow_ambiguous_pad_tokens = false;
  /// A sample reads s + 1 tokens, so that its last position has a label. Off: that label is padding.
  bool add_extra_token_to_sequence = true;
  /// Off: a short last validation sample is padded instead of dropped.
  bool drop_last_partial_validation_sequence = true;

  /// --sft: paths name JSON Lines files of conversations, which this encodes; null: indexed files of tokens. It must
  /// outlive the datasets.
  const ConversationEncoder* conversations = nullptr;
  /// --fim-data: changes the samples of indexed files, whose class is then Megatron's GPTFIMDataset; null: they stay as
  /// they are. It must outlive the datasets. Sample i draws from a stream of its own, seeded with random_seed + i.
  const FillInTheMiddle* fill_in_the_middle = nullptr;
  /// The counts that --per-dataset-sequences-path gives of the files, which must have them; null: none are given. It
  /// must outlive the call that builds the datasets.
  const SequenceCountsByPrefix* sequence_counts = nullptr;
  /// Ranks that share a sequence: conversations are padded so that it divides them.
  int64_t context_parallel_size = 1;

  /// Directory of index cache files; empty: `<prefix>/cache/GPTDataset_indices`, and none for blends and mock data.
  std::string path_to_cache;
  /// Says whether built indices are written to the cache. Set it on one rank of each file system.
  bool write_cache = true;
  /// Says whether the content of cached indices is checked against the data. One process of each host does it before
  /// others of the host read the cache.
  bool check_cache = true;
  /// kPread is Megatron's --no-mmap-bin-files.
  FileAccess bin_access = FileAccess::kMap;
  /// Blend members offer this fraction of samples more than the blend is expected to draw.
  double mid_level_dataset_surplus = 0.005;
  /// Members of a blend that are built concurrently.
  int num_dataset_builder_threads = 1;
};

}  // namespace megatron
