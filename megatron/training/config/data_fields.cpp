// Data and tokenizer.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

void describe_sources(FieldTable& table, DataConfig& data) {
  table.begin_group("Data",
                    "One source: --mock-data; or --data-path with the prefix of a .bin/.idx pair (several: weight and "
                    "prefix in turn) and --split; or one list per split. `megatron preprocess_data` makes the pairs.");
  table.add("mock_data", data.mock_data, "made-up sequences");
  table.add("data_path", data.data_path, "prefixes, or weights and prefixes in turn, as words or as one quoted word")
      .may_be_empty();
  table.add("split", data.split, "parts for training, validation and test, such as 969,30,1")
      .by_default("969,30,1 with --data-path");
  table.add("train_data_path", data.train_data_path, "as --data-path, for training only").may_be_empty();
  table.add("valid_data_path", data.valid_data_path, "as --data-path, for validation only").may_be_empty();
  table.add("test_data_path", data.test_data_path, "as --data-path, for the test only").may_be_empty();
  table.add("data_args_path", data.data_args_path, "file with the words of --data-path; needs --split");
  table.add("per_split_data_args_path", data.per_split_data_args_path, "JSON file with the keys train, valid and test");
  table.add("data_cache_path", data.data_cache_path, "folder of the shuffles").by_default("beside the data");
  table.add("mmap_bin_files", data.mmap_bin_files, "read .bin files instead of mapping them")
      .turned_off_by({"--no-mmap-bin-files"});
  table.add("dataloader_type", data.dataloader_type, "single: one pass in stored order; cyclic: shuffled epochs")
      .by_default("single")
      .one_of({"single", "cyclic"})
      .later({"external"});
  table.add("data_sharding", data.data_sharding, "cyclic: shuffle over all ranks instead of within each")
      .turned_off_by({"--no-data-sharding"});
  table
      .add("mid_level_dataset_surplus", data.mid_level_dataset_surplus,
           "extra part of samples that members of a blend build")
      .at_least(0);
  table.add("num_dataset_builder_threads", data.num_dataset_builder_threads, "threads that build datasets").at_least(1);
}

void describe_documents(FieldTable& table, DataConfig& data) {
  table.begin_group("Documents in a sequence",
                    "A sequence is cut from documents laid end to end, each closed by an end token.");
  table.add("reset_position_ids", data.reset_position_ids, "count positions from 0 in each document");
  table.add("reset_attention_mask", data.reset_attention_mask, "documents do not see each other");
  table.add("eod_mask_loss", data.eod_mask_loss, "no loss on what follows an end token");
  table.add("allow_ambiguous_pad_tokens", data.allow_ambiguous_pad_tokens,
            "accept a pad token that is another special token too");
}

void describe_tokenizer(FieldTable& table, TokenizerConfig& tokenizer) {
  table.begin_group(
      "Tokenizer",
      "GPT2BPETokenizer needs --vocab-file and --merge-file; CharTokenizer and the BERT types --vocab-file; "
      "HuggingFaceTokenizer, the SentencePiece types and TikTokenizer --tokenizer-model; NullTokenizer "
      "(text that is numbers) --vocab-size; ByteLevelTokenizer nothing.");
  table.add("tokenizer_type", tokenizer.tokenizer_type, "which one")
      .one_of({"GPT2BPETokenizer", "HuggingFaceTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer",
               "Llama2Tokenizer", "TikTokenizer", "BertWordPieceLowerCase", "BertWordPieceCase", "ByteLevelTokenizer",
               "CharTokenizer", "NullTokenizer"})
      .later({"MultimodalTokenizer", "NullMultimodalTokenizer", "SFTTokenizer"})
      .choice_also("Llama3Tokenizer", "HuggingFaceTokenizer");
  table.add("tokenizer_model", tokenizer.tokenizer_model,
            "its file, or for HuggingFaceTokenizer also the folder of a tokenizer.json");
  table.add("vocab_file", tokenizer.vocab_file, "vocabulary");
  table.add("merge_file", tokenizer.merge_file, "merges of byte-pair encoding");
  table.add("vocab_size", tokenizer.vocab_size, "entries before padding")
      .by_default("the entries of the tokenizer")
      .at_least(1);
  table.add("padded_vocab_size", tokenizer.padded_vocab_size, "rows of the embedding")
      .by_default("--vocab-size, padded as the next two flags say")
      .at_least(1);
  table.add_on("pad_vocab_size", tokenizer.pad_vocab_size, "do not pad the vocabulary");
  table
      .add("make_vocab_size_divisible_by", tokenizer.make_vocab_size_divisible_by,
           "pad the vocabulary to a multiple of this * --tensor-model-parallel-size")
      .at_least(1);
  table.add("null_tokenizer_eod_id", tokenizer.null_tokenizer_eod_id, "end token of NullTokenizer")
      .by_default("the last entry")
      .at_least(0);
  table.add("null_tokenizer_pad_id", tokenizer.null_tokenizer_pad_id, "pad token of NullTokenizer");
  table.add("tokenizer_special_tokens", tokenizer.tokenizer_special_tokens,
            "strings that are recognised in text besides those of the tokenizer");
  table.add("tokenizer_hf_no_include_special_tokens", tokenizer.tokenizer_hf_no_include_special_tokens,
            "HuggingFaceTokenizer and BERT: do not add tokens around a text");
  table
      .add("tiktoken_pattern", tokenizer.tiktoken_pattern,
           "how TikTokenizer cuts text: Megatron's v1 or v2, or that of a .tiktoken file")
      .by_default("v2 with Megatron's JSON list")
      .one_of({"v1", "v2", "r50k", "cl100k", "o200k", "llama3"});
  table
      .add("tiktoken_num_special_tokens", tokenizer.tiktoken_num_special_tokens,
           "special tokens in front of the others of Megatron's JSON list")
      .at_least(0);
  table.add("tokenizer_sentencepiece_legacy", tokenizer.tokenizer_sentencepiece_legacy,
            "SentencePiece: allow --tokenizer-special-tokens");
  table.add_on("tokenizer_sentencepiece_ignore_extra_whitespaces",
               tokenizer.tokenizer_sentencepiece_ignore_extra_whitespaces,
               "SentencePiece: keep repeated, leading and trailing spaces that the model drops");
}

}  // namespace

void describe_data(FieldTable& table, PretrainConfig& config) {
  describe_sources(table, config.data);
  describe_documents(table, config.data);
  describe_tokenizer(table, config.tokenizer);
}

}  // namespace megatron
