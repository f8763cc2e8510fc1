#include "commands/tokenizer_flags.h"

#include "megatron/base/word_list.h"

namespace megatron {
namespace {

/// A flag of Megatron that is accepted so that scripts run unchanged. Its value is not kept.
void add_without_effect(FieldTable& table, std::string_view name, const FieldValue& value, std::string reason) {
  const bool is_switch = std::holds_alternative<bool>(value);
  Field& field = table.add_untyped(name, is_switch ? WordKind::kSwitch : WordKind::kInteger, "");
  field.without_effect(std::move(reason));
  field.get = [value] { return value; };
  field.set = [](const FieldValue&) {};
}

}  // namespace

void describe_tokenizer_flags(FieldTable& table, TokenizerOptions& tokenizer) {
  table.begin_group(
      "Tokenizer",
      "GPT2BPETokenizer needs --vocab-file and --merge-file; HuggingFaceTokenizer, also named Llama3Tokenizer "
      "and SFTTokenizer, --tokenizer-model: a tokenizer.json or its folder, whose other files name the end of "
      "document; "
      "SentencePieceTokenizer, also named GPTSentencePieceTokenizer and Llama2Tokenizer, --tokenizer-model: a .model "
      "file; TikTokenizer --tokenizer-model: Megatron's JSON list or a .tiktoken file; BertWordPieceLowerCase and "
      "BertWordPieceCase --vocab-file: vocab.txt; NullTokenizer, for text that is numbers, --vocab-size; CharTokenizer "
      "--vocab-file, the characters one after the other or, named *.json, a list of them; ByteLevelTokenizer, whose "
      "tokens are bytes, nothing. Vocabularies below 65500 tokens are stored as uint16, others as int32.");
  table.add("tokenizer_type", tokenizer.type, fmt::format("one of {}", joined(tokenizer_types(), ", ")));
  table.add("vocab_file", tokenizer.vocab_file, "vocabulary");
  table.add("merge_file", tokenizer.merge_file, "merge rules of byte-pair encoding");
  table.add("tokenizer_model", tokenizer.model, "file or folder of a tokenizer type that has one");
  table
      .add("vocab_size", tokenizer.vocab_size,
           "number of tokens; other types than NullTokenizer and TikTokenizer know it and compare")
      .at_least(1);
  table.add("tokenizer_special_tokens", tokenizer.special_tokens,
            "strings that are recognised in the text besides those of the tokenizer");
  table.add("tokenizer_hf_no_include_special_tokens", tokenizer.hf_no_include_special_tokens,
            "HuggingFaceTokenizer and BERT: do not add what the post-processor puts around each text, such as BOS");
  table
      .add("tiktoken_pattern", tokenizer.tiktoken_pattern,
           "how TikTokenizer cuts text: Megatron's v1 or v2, or that of a .tiktoken file")
      .by_default("v2 with Megatron's JSON list")
      .one_of({"v1", "v2", "r50k", "cl100k", "o200k", "llama3"});
  table
      .add("tiktoken_num_special_tokens", tokenizer.tiktoken_num_special_tokens,
           "special tokens in front of the others of Megatron's JSON list")
      .by_default("1000")
      .at_least(0);
  table.add("tokenizer_sentencepiece_legacy", tokenizer.sentencepiece_legacy,
            "SentencePiece: allow --tokenizer-special-tokens");
  table.add_on("tokenizer_sentencepiece_ignore_extra_whitespaces", tokenizer.sentencepiece_ignore_extra_whitespaces,
               "SentencePiece: keep repeated, leading and trailing spaces that the model drops");
  table.add("null_tokenizer_eod_id", tokenizer.null_eod, "end of document of NullTokenizer")
      .by_default("the last token")
      .at_least(0);
  table.add("null_tokenizer_pad_id", tokenizer.null_pad, "padding of NullTokenizer");
  add_without_effect(table, "vocab_extra_ids", int64_t{0}, "Megatron 0.20 reads it nowhere");
  add_without_effect(table, "tokenizer_hf_no_use_fast", false, "tokenizers are native code");
  add_without_effect(table, "trust_remote_code", false, "no Python code is run");
  add_without_effect(table, "use_gigatoken", false, "tokenizers are native code");
}

std::vector<std::string> notes_without_effect(const FieldTable& table, const GivenFields& given) {
  std::vector<std::string> notes;
  table.for_each([&](const Field& field) {
    if (!field.no_effect.empty() && given.contains(field.name))
      notes.push_back(fmt::format("{} has no effect: {}", field.spelling(), field.no_effect));
  });
  return notes;
}

RefusedFlags refused_tokenizer_flags() {
  return {{"--tokenizer-metadata", "the type and its flags say all; leave the flag out"},
          {"--chat-template", "megatron tokenize --chat alone renders conversations"}};
}

}  // namespace megatron
