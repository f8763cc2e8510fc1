// The flags of megatron preprocess_data.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/field.h"
#include "megatron/tokenizers/document_source.h"
#include "megatron/tokenizers/tokenizer_factory.h"

namespace megatron {

enum class InputFormat { kJsonl, kText };
constexpr std::array<std::pair<InputFormat, std::string_view>, 2> names_of_enum(InputFormat) {
  return {{{InputFormat::kJsonl, "jsonl"}, {InputFormat::kText, "text"}}};
}
enum class TextDocuments { kFile, kBlankLine };
constexpr std::array<std::pair<TextDocuments, std::string_view>, 2> names_of_enum(TextDocuments) {
  return {{{TextDocuments::kFile, "file"}, {TextDocuments::kBlankLine, "blank-line"}}};
}

enum class OnBadLine { kError, kSkip };
constexpr std::array<std::pair<OnBadLine, std::string_view>, 2> names_of_enum(OnBadLine) {
  return {{{OnBadLine::kError, "error"}, {OnBadLine::kSkip, "skip"}}};
}

struct PreprocessDataConfig {
  std::vector<std::string> input;
  std::vector<std::string> json_keys = {"text"};
  std::string output_prefix;
  bool append_eod = false;
  std::optional<int64_t> workers;  ///< none: one per core
  int64_t log_interval = 1000;
  int64_t partitions = 1;
  bool keep_sequential_samples = false;
  OnBadLine on_bad_line = OnBadLine::kError;

  InputFormat input_format = InputFormat::kJsonl;
  TextDocuments text_documents = TextDocuments::kFile;
  std::optional<double> text_split;
  bool make_char_vocab = false;

  bool split_sentences = false;
  bool keep_newlines = false;
  std::string lang = "english";
  std::optional<std::string> punkt_model;

  bool resume = true;
  double resume_interval = 10;  ///< seconds

  bool find_optimal_num_workers = false;
  std::vector<int64_t> workers_to_check = {16, 32, 64};
  int64_t max_documents = 100'000;

  TokenizerOptions tokenizer;
  std::vector<std::string> notes;  ///< on given flags that have no effect

  DocumentFormat document_format() const;
  /// The last part of the names of the output: what a sequence is.
  std::string_view level() const { return split_sentences ? "sentence" : "document"; }
};

/// The flags of `config`, which must stay in place.
FieldTable describe(PreprocessDataConfig& config);

/// Reads the arguments. @throw ConfigError that lists all mistakes.
PreprocessDataConfig parse_preprocess_data_flags(const std::vector<std::string>& args);

/// The text that --help, --help WORD or --help=FLAG prints.
std::string preprocess_data_help(const std::vector<std::string>& args);

}  // namespace megatron
