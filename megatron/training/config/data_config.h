// Settings of data and tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/tokenizers/prompt_format.h"

namespace megatron {

/// Samples for filling in the middle of a text. Names and defaults are Megatron's.
struct FillInTheMiddleConfig {
  bool fim_data = false;
  double fim_rate = 0.5;
  double fim_spm_rate = 0.5;
  std::optional<std::string> fim_split_sample;  ///< a token
  std::optional<double> fim_fragment_rate;
  std::optional<std::string> fim_no_prefix;
  std::string fim_prefix_token = "<fim_prefix>";
  std::string fim_middle_token = "<fim_middle>";
  std::string fim_suffix_token = "<fim_suffix>";
  std::string fim_pad_token = "<fim_pad>";
  std::string fim_eod_token = "<|endoftext|>";
};

struct DataConfig {
  bool mock_data = false;
  std::vector<std::string> data_path;  ///< prefixes, or weight and prefix in turn
  std::optional<std::string> split;    ///< "969, 30, 1"
  std::vector<std::string> train_data_path;
  std::vector<std::string> valid_data_path;
  std::vector<std::string> test_data_path;
  std::optional<std::string> data_args_path;            ///< file that holds the words of data_path
  std::optional<std::string> per_split_data_args_path;  ///< JSON file with keys train, valid, test
  std::optional<std::string> data_cache_path;
  bool mmap_bin_files = true;
  std::optional<std::string> dataloader_type;  ///< single, cyclic, external; none given: single
  bool data_sharding = true;                   ///< cyclic: each data-parallel rank shuffles its own part
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool eod_mask_loss = false;
  bool allow_ambiguous_pad_tokens = false;
  double mid_level_dataset_surplus = 0.005;
  int64_t num_dataset_builder_threads = 1;
  bool dataloader_inter_document_masking = false;
  bool sft = false;  ///< the data are conversations
  FillInTheMiddleConfig fill_in_the_middle;
  std::optional<std::string> per_dataset_sequences_path;  ///< file of `megatron build_sequences_per_dataset`

  /// True if tokens see their own document alone.
  bool separates_documents() const { return reset_attention_mask || dataloader_inter_document_masking || sft; }
  bool resets_positions() const { return reset_position_ids || dataloader_inter_document_masking || sft; }
  /// True if a sample has several documents, whose number is known only when it is read.
  bool has_documents() const { return separates_documents() || resets_positions(); }
};

struct TokenizerConfig {
  std::string tokenizer_type = "GPT2BPETokenizer";
  std::optional<std::string> tokenizer_model;
  std::optional<std::string> vocab_file;
  std::optional<std::string> merge_file;
  std::optional<int64_t> vocab_size;
  std::optional<int64_t> padded_vocab_size;
  bool pad_vocab_size = true;
  int64_t make_vocab_size_divisible_by = 128;
  std::optional<int64_t> null_tokenizer_eod_id;
  int64_t null_tokenizer_pad_id = -1;
  std::optional<std::vector<std::string>> tokenizer_special_tokens;
  bool tokenizer_hf_no_include_special_tokens = false;
  std::optional<std::string> tiktoken_pattern;
  int64_t tiktoken_num_special_tokens = 1000;
  bool tokenizer_sentencepiece_legacy = false;
  bool tokenizer_sentencepiece_ignore_extra_whitespaces = true;
  PromptFormat sft_tokenizer_prompt_format = PromptFormat::kNemotronHAligned;
  std::optional<std::string> chat_template;  ///< the template, or its file
};

}  // namespace megatron
