// Describes the settings of data and tokenizer.
#include <algorithm>

#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

void describe_sources(FieldTable& table, PretrainConfig& config) {
  DataConfig& data = config.data;
  table.begin_group("Data",
                    "One source: --mock-data; or --data-path with the prefix of a .bin/.idx pair (several: weight and "
                    "prefix in turn) and --split; or one list per split. `megatron preprocess_data` makes the pairs.");
  table.add("mock_data", data.mock_data, "made-up sequences")
      .known_as("mock synthetic synthetic-data fake-data dummy-data random-data");
  table.add("data_path", data.data_path, "prefixes, or weights and prefixes in turn, as words or as one quoted word")
      .may_be_empty()
      .differs_between_hosts()
      .known_as(
          "data dataset data-dir data-file data-prefix dataset-path input-data train-data training-data train-file");
  table.add("split", data.split, "parts for training, validation and test, such as 969,30,1")
      .by_default("969,30,1 with --data-path")
      .such_as("--data-path data --split 98,1,1");
  table.add("train_data_path", data.train_data_path, "as --data-path, for training only")
      .may_be_empty()
      .differs_between_hosts()
      .such_as("--train-data-path train --valid-data-path valid --test-data-path test");
  table.add("valid_data_path", data.valid_data_path, "as --data-path, for validation only")
      .may_be_empty()
      .differs_between_hosts()
      .such_as("--train-data-path train --valid-data-path valid --test-data-path test");
  table.add("test_data_path", data.test_data_path, "as --data-path, for the test only")
      .may_be_empty()
      .differs_between_hosts()
      .such_as("--train-data-path train --valid-data-path valid --test-data-path test");
  table.add("data_args_path", data.data_args_path, "file with the words of --data-path; needs --split")
      .differs_between_hosts()
      .such_as("--data-args-path words.txt --split 98,1,1");
  table.add("per_split_data_args_path", data.per_split_data_args_path, "JSON file with the keys train, valid and test")
      .differs_between_hosts();
  table.add("data_cache_path", data.data_cache_path, "folder of the shuffles")
      .by_default("beside the data")
      .differs_between_hosts();
  table.add("mmap_bin_files", data.mmap_bin_files, "read .bin files instead of mapping them")
      .turned_off_by({"--no-mmap-bin-files"});
  table
      .add("dataloader_type", data.dataloader_type,
           "single: one pass in stored order; cyclic: shuffled epochs; external: batches of a program that uses the "
           "library")
      .by_default("single")
      .one_of({"single", "cyclic", "external"})
      .sets_sample_order()
      .differs(
          {.megatron = "a sample's place hangs on the micro-batch size and the number of replicas; a checkpoint goes "
                       "on in any other order without a word",
           .ours = "Megatron-LM's order, so the losses are those of this layout and micro-batch size alone, unlike "
                   "those of the default loader; a checkpoint that goes on with others is loaded with a warning",
           .in_force = [&config] { return config.data.dataloader_type == "cyclic"; },
           .topic = "--dataloader-type cyclic"});
  table.add("data_sharding", data.data_sharding, "cyclic: shuffle over all ranks instead of within each")
      .turned_off_by({"--no-data-sharding"})
      .sets_sample_order()
      .needs("--dataloader-type cyclic", [&config] { return config.data.dataloader_type == "cyclic"; })
      .such_as("--dataloader-type cyclic --no-data-sharding");
  table
      .add("mid_level_dataset_surplus", data.mid_level_dataset_surplus,
           "extra part of samples that members of a blend build")
      .at_least(0);
  table
      .add("per_dataset_sequences_path", data.per_dataset_sequences_path,
           "file of `megatron build_sequences_per_dataset`, whose counts the data must have")
      .differs_between_hosts()
      .differs({.megatron = "reads no header of an .idx and takes its tokens for 2 or 4 bytes by the vocabulary",
                .ours = "the headers decide; a file without a dataset or with other counts is an error",
                .in_force = [&config] { return config.data.per_dataset_sequences_path.has_value(); }})
      .such_as("--data-path data --per-dataset-sequences-path counts.json");
  table.add("num_dataset_builder_threads", data.num_dataset_builder_threads, "threads that build datasets").at_least(1);
}

void describe_documents(FieldTable& table, PretrainConfig& config) {
  DataConfig& data = config.data;
  table.begin_group("Documents in a sequence",
                    "A sequence is cut from documents laid end to end, each closed by an end token.");
  table.add("reset_position_ids", data.reset_position_ids, "count positions from 0 in each document");
  table.add("reset_attention_mask", data.reset_attention_mask, "documents do not see each other");
  table
      .add("dataloader_inter_document_masking", data.dataloader_inter_document_masking,
           "documents of a sample, as they are in the data and whatever their tokens, do not see each other, and count "
           "positions from 0")
      .such_as("--data-path data --dataloader-inter-document-masking");
  table.add("eod_mask_loss", data.eod_mask_loss, "no loss on what follows an end token");
  table.add("allow_ambiguous_pad_tokens", data.allow_ambiguous_pad_tokens,
            "accept a pad token that is another special token too");
}

void describe_conversations(FieldTable& table, PretrainConfig& config) {
  TokenizerConfig& tokenizer = config.tokenizer;
  const auto is_fine_tuned = [&config] { return config.data.sft; };
  table.begin_group(
      "Supervised fine-tuning",
      "With --sft a line of a data file is {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}, ...]}; messages "
      "from one with the role system on are a conversation, and those of a line share one sequence.");
  table
      .add("sft", config.data.sft,
           "train on conversations: --data-path and its kin name JSON Lines files instead of .bin/.idx pairs")
      .differs({.megatron = "rejects several files without weights, and averages micro-batch means of the evaluation",
                .ours = "a file without a weight counts with its lines; evaluation is the mean over trained tokens",
                .in_force = is_fine_tuned})
      .such_as("--data-path chats.jsonl --sft --tokenizer-type HuggingFaceTokenizer --tokenizer-model model");
  table
      .add("sft_tokenizer_prompt_format", tokenizer.sft_tokenizer_prompt_format,
           "how a conversation becomes text: Megatron's formats, of which default is the chat template of the "
           "tokenizer with a loss on all tokens; or chat-template, the same with a loss on answers only")
      .differs({.megatron = "fails where tokens of one message alone are not those that it has in the conversation",
                .ours = "trains the tokens that begin in an answer or reach into it; has chat-template as well",
                .in_force = is_fine_tuned})
      .needs("--sft", is_fine_tuned)
      .such_as("--data-path chats.jsonl --sft --sft-tokenizer-prompt-format chat-template");
  table.add("chat_template", tokenizer.chat_template, "a chat template in Jinja, or its file")
      .by_default("that of --tokenizer-model")
      .differs_between_hosts()
      .needs("--sft and a format that has a chat template",
             [&config] { return config.data.sft && has_chat_template(config.tokenizer.sft_tokenizer_prompt_format); })
      .such_as("--data-path chats.jsonl --sft --sft-tokenizer-prompt-format chat-template --chat-template chat.jinja");
}

void describe_fill_in_the_middle(FieldTable& table, PretrainConfig& config) {
  FillInTheMiddleConfig& fill = config.data.fill_in_the_middle;
  const auto is_on = [&fill] { return fill.fim_data; };
  const auto has_fragments = [&fill] { return fill.fim_data && fill.fim_split_sample; };
  table.begin_group(
      "Fill in the middle",
      "With --fim-data a part of the documents of a sample is cut at two random characters into prefix, middle and "
      "suffix, and the middle comes last: PREFIX prefix SUFFIX suffix MIDDLE middle. The five tokens must be in the "
      "vocabulary; --tokenizer-special-tokens adds them.");
  table.add("fim_data", fill.fim_data, "change documents so that a model learns to fill in the middle")
      .differs({.megatron = "draws from one stream of random numbers for each loader process, so samples depend on "
                            "--num-workers and on how ranks share them, and a resumed run begins the stream again",
                .ours = "sample i draws from a stream of its own, seeded with --seed + i: layouts and resumed runs "
                        "have the same samples",
                .in_force = is_on,
                .topic = "--fim-data"})
      .such_as("--data-path data --fim-data");
  const auto add = [&](std::string_view name, auto& value, std::string_view help,
                       const std::string& example) -> Field& {
    return table.add(name, value, help).needs("--fim-data", is_on).such_as("--data-path data --fim-data " + example);
  };
  add("fim_rate", fill.fim_rate, "part of documents that are changed", "--fim-rate 0.9").above(0).at_most(1);
  add("fim_spm_rate", fill.fim_spm_rate,
      "part of changed documents that have the form PREFIX SUFFIX suffix MIDDLE prefix middle", "--fim-spm-rate 0.1")
      .above(0)
      .at_most(1);
  const std::string split = "--fim-split-sample <file> --fim-fragment-rate 0.9";
  add("fim_split_sample", fill.fim_split_sample, "token that cuts a document into fragments to change one by one",
      split);
  add("fim_fragment_rate", fill.fim_fragment_rate, "part of the fragments of a document that are changed", split)
      .by_default("required with --fim-split-sample")
      .above(0)
      .at_most(1)
      .needs("--fim-data and --fim-split-sample", has_fragments);
  add("fim_no_prefix", fill.fim_no_prefix, "leave texts that begin so as they are", "--fim-no-prefix #!");
  add("fim_prefix_token", fill.fim_prefix_token, "token before the prefix", "--fim-prefix-token <PRE>");
  add("fim_middle_token", fill.fim_middle_token, "token before the middle", "--fim-middle-token <MID>");
  add("fim_suffix_token", fill.fim_suffix_token, "token before the suffix", "--fim-suffix-token <SUF>");
  add("fim_pad_token", fill.fim_pad_token, "token that fills a sample up that has become shorter",
      "--fim-pad-token <PAD>");
  add("fim_eod_token", fill.fim_eod_token, "token between documents", "--fim-eod-token <EOT>");
}

void describe_tiktoken(FieldTable& table, PretrainConfig& config) {
  TokenizerConfig& tokenizer = config.tokenizer;
  const auto has_tiktoken = [&tokenizer] { return tokenizer.tokenizer_type == "TikTokenizer"; };
  table
      .add("tiktoken_pattern", tokenizer.tiktoken_pattern,
           "how TikTokenizer cuts text: Megatron's v1 or v2, or that of a .tiktoken file")
      .by_default("v2 with Megatron's JSON list")
      .one_of({"v1", "v2", "r50k", "cl100k", "o200k", "llama3"})
      .needs("--tokenizer-type TikTokenizer", has_tiktoken)
      .such_as("--tokenizer-type TikTokenizer --tokenizer-model vocab.json --tiktoken-pattern v1");
  table
      .add("tiktoken_num_special_tokens", tokenizer.tiktoken_num_special_tokens,
           "special tokens in front of the others of Megatron's JSON list")
      .at_least(0)
      .needs("--tokenizer-type TikTokenizer", has_tiktoken)
      .such_as("--tokenizer-type TikTokenizer --tokenizer-model vocab.json --tiktoken-num-special-tokens 100");
}

void describe_tokenizer(FieldTable& table, PretrainConfig& config) {
  TokenizerConfig& tokenizer = config.tokenizer;
  const auto is_one_of = [&tokenizer](std::initializer_list<std::string_view> types) {
    return std::ranges::find(types, tokenizer.tokenizer_type) != types.end();
  };
  const auto has_sentence_piece = [is_one_of] {
    return is_one_of({"SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer"});
  };
  table.begin_group(
      "Tokenizer",
      "GPT2BPETokenizer needs --vocab-file and --merge-file; CharTokenizer and the BERT types --vocab-file; "
      "HuggingFaceTokenizer, the SentencePiece types and TikTokenizer --tokenizer-model; NullTokenizer "
      "(text that is numbers) --vocab-size; ByteLevelTokenizer nothing.");
  table.add("tokenizer_type", tokenizer.tokenizer_type, "which one")
      .one_of({"GPT2BPETokenizer", "HuggingFaceTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer",
               "Llama2Tokenizer", "TikTokenizer", "BertWordPieceLowerCase", "BertWordPieceCase", "ByteLevelTokenizer",
               "CharTokenizer", "NullTokenizer"})
      .later({"MultimodalTokenizer", "NullMultimodalTokenizer"})
      .choice_also("Llama3Tokenizer", "HuggingFaceTokenizer")
      .choice_also("SFTTokenizer", "HuggingFaceTokenizer")
      .taken_from_checkpoint()
      .known_as("tokenizer")
      .such_as("--tokenizer-type ByteLevelTokenizer");
  table
      .add("tokenizer_model", tokenizer.tokenizer_model,
           "its file, or for HuggingFaceTokenizer also the folder of a tokenizer.json")
      .taken_from_checkpoint()
      .differs_between_hosts()
      .needs("a tokenizer type that reads it",
             [is_one_of, has_sentence_piece] {
               return has_sentence_piece() || is_one_of({"HuggingFaceTokenizer", "TikTokenizer"});
             })
      .such_as("--tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer.json");
  table.add("vocab_file", tokenizer.vocab_file, "vocabulary")
      .differs_between_hosts()
      .needs("--tokenizer-type GPT2BPETokenizer, CharTokenizer or one of BERT",
             [is_one_of] {
               return is_one_of({"GPT2BPETokenizer", "CharTokenizer", "BertWordPieceLowerCase", "BertWordPieceCase"});
             })
      .differs(
          {.megatron = "ignores those that the tokenizer type does not read",
           .ours = "the same, and the banner names them",
           .topic = "--vocab-file, --merge-file, --tokenizer-model, --null-tokenizer-eod-id, --null-tokenizer-pad-id"})
      .known_as("vocabulary-file")
      .such_as("--tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt");
  table.add("merge_file", tokenizer.merge_file, "merges of byte-pair encoding")
      .differs_between_hosts()
      .needs("--tokenizer-type GPT2BPETokenizer",
             [&config] { return config.tokenizer.tokenizer_type == "GPT2BPETokenizer"; })
      .known_as("merges merges-file")
      .such_as("--tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt");
  table.add("vocab_size", tokenizer.vocab_size, "entries before padding")
      .by_default("the entries of the tokenizer")
      .at_least(1)
      .known_as("vocab vocabulary vocabulary-size n-vocab");
  table.add("padded_vocab_size", tokenizer.padded_vocab_size, "rows of the embedding")
      .by_default("--vocab-size, padded as the next two flags say")
      .at_least(1)
      .taken_from_checkpoint(StoredValue::kTakenIfNotSet)
      .such_as("--vocab-size 50257 --padded-vocab-size 50432");
  table.add_on("pad_vocab_size", tokenizer.pad_vocab_size, "do not pad the vocabulary");
  table
      .add("make_vocab_size_divisible_by", tokenizer.make_vocab_size_divisible_by,
           "pad the vocabulary to a multiple of this * --tensor-model-parallel-size")
      .at_least(1);
  table.add("null_tokenizer_eod_id", tokenizer.null_tokenizer_eod_id, "end token of NullTokenizer")
      .by_default("the last entry")
      .at_least(0)
      .needs("--tokenizer-type NullTokenizer", [&config] { return config.tokenizer.tokenizer_type == "NullTokenizer"; })
      .such_as("--tokenizer-type NullTokenizer --vocab-size 256 --null-tokenizer-eod-id 0");
  table.add("null_tokenizer_pad_id", tokenizer.null_tokenizer_pad_id, "pad token of NullTokenizer")
      .needs("--tokenizer-type NullTokenizer", [&config] { return config.tokenizer.tokenizer_type == "NullTokenizer"; })
      .such_as("--tokenizer-type NullTokenizer --vocab-size 256 --null-tokenizer-pad-id 0");
  table.add("tokenizer_special_tokens", tokenizer.tokenizer_special_tokens,
            "strings that are recognised in text besides those of the tokenizer");
  table
      .add("tokenizer_hf_no_include_special_tokens", tokenizer.tokenizer_hf_no_include_special_tokens,
           "HuggingFaceTokenizer and BERT: do not add tokens around a text")
      .needs("--tokenizer-type HuggingFaceTokenizer or one of BERT",
             [is_one_of] {
               return is_one_of({"HuggingFaceTokenizer", "BertWordPieceLowerCase", "BertWordPieceCase"});
             })
      .such_as(
          "--tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer.json "
          "--tokenizer-hf-no-include-special-tokens");
  describe_tiktoken(table, config);
  table
      .add("tokenizer_sentencepiece_legacy", tokenizer.tokenizer_sentencepiece_legacy,
           "SentencePiece: allow --tokenizer-special-tokens")
      .needs("a --tokenizer-type of SentencePiece", has_sentence_piece)
      .such_as("--tokenizer-type SentencePieceTokenizer --tokenizer-model m.model --tokenizer-sentencepiece-legacy");
  table
      .add_on("tokenizer_sentencepiece_ignore_extra_whitespaces",
              tokenizer.tokenizer_sentencepiece_ignore_extra_whitespaces,
              "SentencePiece: keep repeated, leading and trailing spaces that the model drops")
      .needs("a --tokenizer-type of SentencePiece", has_sentence_piece)
      .such_as(
          "--tokenizer-type SentencePieceTokenizer --tokenizer-model m.model "
          "--no-tokenizer-sentencepiece-ignore-extra-whitespaces");
}

}  // namespace

void describe_data(FieldTable& table, PretrainConfig& config) {
  describe_sources(table, config);
  describe_documents(table, config);
  describe_conversations(table, config);
  describe_fill_in_the_middle(table, config);
  describe_tokenizer(table, config);
}

}  // namespace megatron
