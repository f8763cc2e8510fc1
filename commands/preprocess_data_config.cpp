#include "commands/preprocess_data_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "commands/tokenizer_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/field_needs.h"
#include "megatron/base/flag_help.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/base/word_list.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {
constexpr std::string_view kPreprocessIntroduction =
    R"(usage: megatron preprocess_data --input FILE... --output-prefix PREFIX --tokenizer-type TYPE [flags]

Tokenizes text into PREFIX_KEY_document.bin and PREFIX_KEY_document.idx, which training reads with
--data-path PREFIX_KEY_document; with --split-sentences the names end in _sentence. The files equal those of Megatron's preprocess_data.py, byte for byte,
with any number of workers. They appear under their names when all of them are complete.

JSON Lines with GPT-2's vocabulary:
  megatron preprocess_data --input corpus.jsonl --output-prefix data/corpus --append-eod \
      --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt

One text file, the last tenth of its characters for validation, bytes as tokens:
  megatron preprocess_data --input shakespeare.txt --output-prefix data/shakespeare \
      --input-format text --text-split 0.9 --tokenizer-type ByteLevelTokenizer
gives data/shakespeare_train_text_document and data/shakespeare_val_text_document.

)";

void describe_input(FieldTable& table, PreprocessDataConfig& config) {
  table.begin_group("Input and output", "Each line of the input is a JSON object and one document.");
  table
      .add("input", config.input,
           "files, or patterns such as data/*.jsonl, also compressed by gzip or zstd; their documents are concatenated")
      .known_as(
          "data dataset data-dir data-file data-prefix dataset-path input-data train-data training-data train-file "
          "input-file input-files");
  table.add("json_keys", config.json_keys,
            "keys whose values, a string or a list of strings, are encoded; each gives its own pair of files");
  table.add("output_prefix", config.output_prefix, "path of the output without _KEY_document and suffix")
      .known_as("save-dir save-path out-dir output-dir output checkpoint checkpoint-dir ckpt-dir");
  table.add("append_eod", config.append_eod, "end each document that is not empty with the end-of-document token");
  table.add("workers", config.workers, "threads that tokenize")
      .by_default("one per core")
      .at_least(1)
      .at_most(1024)
      .known_as("num-worker n-workers");
  table.add("log_interval", config.log_interval, "documents between two lines of progress").at_least(1);
  table
      .add("partitions", config.partitions,
           "order the documents like Megatron's partitions: number 0, N, 2N, ..., then 1, N + 1, ...; the input is "
           "read N times")
      .at_least(1);
  table
      .add("keep_sequential_samples", config.keep_sequential_samples,
           "with --partitions: keep the order of the input, like Megatron's contiguous partitions")
      .needs("--partitions above 1", [&config] { return config.partitions > 1; });
  table.add(
      "on_bad_line", config.on_bad_line,
      "what to do with a line that is not the JSON object that is asked for, or cannot be encoded: end, or leave it "
      "out, name the first ones and count all (megatron.cpp only)");
}

void describe_resume(FieldTable& table, PreprocessDataConfig& config) {
  table.begin_group("Killed runs (megatron.cpp only)",
                    "The same command continues where a killed run was; the files are those of a run that was not "
                    "killed. PREFIX.resume.json and files *.tmp.* belong to such a run. What comes from a pipe, "
                    "--text-split and --make-char-vocab start anew.");
  table.add_on("resume", config.resume, "start anew, and remove the files of a run that was killed");
  table.add("resume_interval", config.resume_interval, "time between two savings of the state")
      .in("seconds")
      .at_least(0);
}

void describe_text(FieldTable& table, PreprocessDataConfig& config) {
  table.begin_group("Plain text (an extension of megatron.cpp)",
                    "The output is named as if the text were the value of the JSON key text.");
  table.add("input_format", config.input_format, "format of the input");
  table
      .add("text_documents", config.text_documents,
           "document of a text: the whole file, or the text between empty lines")
      .needs("--input-format text", [&config] { return config.input_format == InputFormat::kText; });
  table
      .add("text_split", config.text_split,
           "fraction of the characters of each file that goes to PREFIX_train; the rest goes to PREFIX_val")
      .above(0)
      .below(1)
      .needs("--input-format text", [&config] { return config.input_format == InputFormat::kText; });
  table
      .add("make_char_vocab", config.make_char_vocab,
           "with CharTokenizer: first write the distinct characters of the input, in order of their code points, to "
           "--vocab-file, which must not exist")
      .needs("--input-format text", [&config] { return config.input_format == InputFormat::kText; });
}

void describe_sentences(FieldTable& table, PreprocessDataConfig& config) {
  const auto splits = [&config] { return config.split_sentences; };
  table.begin_group(
      "Sentences",
      "Each sentence is a sequence of its document, and the output is named PREFIX_KEY_sentence. BERT and "
      "T5 need such data. Sentences are those of NLTK's Punkt with the same model.");
  table.add("split_sentences", config.split_sentences, "split texts into sentences");
  table
      .add("keep_newlines", config.keep_newlines,
           "keep white space behind a sentence as its end instead of dropping it")
      .needs("--split-sentences", splits);
  table.add("lang", config.lang, "language of the Punkt model that is searched where NLTK does, also in $NLTK_DATA")
      .needs("--split-sentences", splits);
  table
      .add("punkt_model", config.punkt_model,
           "folder of a Punkt model in the form of NLTK's punkt_tab; none: rules alone, without known abbreviations "
           "(megatron.cpp only)")
      .by_default("that of --lang")
      .needs("--split-sentences", splits);
}

void describe_benchmark(FieldTable& table, PreprocessDataConfig& config) {
  const auto measures = [&config] { return config.find_optimal_num_workers; };
  table.begin_group("Benchmark", "");
  table.add("find_optimal_num_workers", config.find_optimal_num_workers,
            "write nothing: encode a part of the input with several numbers of workers, and print the fastest");
  table.add("workers_to_check", config.workers_to_check, "numbers of workers")
      .at_least(1)
      .at_most(1024)
      .needs("--find-optimal-num-workers", measures);
  table.add("max_documents", config.max_documents, "documents to encode with each")
      .at_least(1)
      .needs("--find-optimal-num-workers", measures);
}

void check(const PreprocessDataConfig& config, const FieldTable& table, const GivenFields& given, Mistakes& mistakes) {
  if (config.input.empty()) mistakes.add({"--input"}, "--input is missing: give the files to read");
  if (config.output_prefix.empty())
    mistakes.add({"--output-prefix"}, "--output-prefix is missing: give the path of the output");
  const std::set<std::string> distinct(config.json_keys.begin(), config.json_keys.end());
  for (const std::string& key : distinct)
    if (std::ranges::count(config.json_keys, key) > 1)
      mistakes.add({"--json-keys"}, "--json-keys names '{}' twice; name each key once", key);
  if (config.tokenizer.type.empty())
    mistakes.add({"--tokenizer-type"}, "--tokenizer-type is missing: one of {}", joined(tokenizer_types(), ", "));
  const bool text = config.input_format == InputFormat::kText;
  if (text && given.contains("json_keys"))
    mistakes.add({"--json-keys", "--input-format"}, "--json-keys: --input-format text has no keys");
  check_needs(table, given, mistakes);
  if (config.text_split && config.text_documents != TextDocuments::kFile)
    mistakes.add({"--text-split", "--text-documents"}, "--text-split cuts files, so it needs --text-documents file");
  if (config.make_char_vocab && config.tokenizer.type != "CharTokenizer")
    mistakes.add({"--make-char-vocab", "--tokenizer-type"}, "--make-char-vocab needs --tokenizer-type CharTokenizer");
  if (config.make_char_vocab && config.find_optimal_num_workers)
    mistakes.add({"--make-char-vocab", "--find-optimal-num-workers"},
                 "--find-optimal-num-workers writes nothing; leave out --make-char-vocab");
  if (config.append_eod && config.tokenizer.type == "CharTokenizer")
    mistakes.add({"--append-eod", "--tokenizer-type"},
                 "--append-eod: CharTokenizer has no end-of-document token; leave out --append-eod");
  if (config.make_char_vocab && config.tokenizer.vocab_file.empty())
    mistakes.add({"--make-char-vocab", "--vocab-file"}, "--make-char-vocab needs --vocab-file, the file to write");
  if (config.make_char_vocab && config.tokenizer.vocab_file.ends_with(".json"))
    mistakes.add({"--make-char-vocab", "--vocab-file"},
                 "--make-char-vocab writes plain characters, but {} is named as JSON; name it *.txt",
                 config.tokenizer.vocab_file);
}
}  // namespace

DocumentFormat PreprocessDataConfig::document_format() const {
  if (input_format == InputFormat::kJsonl) return DocumentFormat::kLines;
  return text_documents == TextDocuments::kFile ? DocumentFormat::kWholeFile : DocumentFormat::kParagraphs;
}

FieldTable describe(PreprocessDataConfig& config) {
  FieldTable table;
  describe_input(table, config);
  describe_resume(table, config);
  describe_sentences(table, config);
  describe_text(table, config);
  describe_benchmark(table, config);
  describe_tokenizer_flags(table, config.tokenizer);
  return table;
}

namespace {
RefusedFlags refused_preprocess_data_flags() {
  const std::string padding = "padding of the vocabulary is a setting of training; the files do not depend on it";
  RefusedFlags refused = refused_tokenizer_flags();
  refused.insert({{"--padded-vocab-size", padding},
                  {"--no-pad-vocab-size", padding},
                  {"--disable-pad-vocab-size", padding},
                  {"--make-vocab-size-divisible-by", padding}});
  return refused;
}

std::string refused_flags_about(std::string_view word) {
  std::string entries;
  for (const auto& [flag, reason] : refused_preprocess_data_flags())
    if (mentions(flag, word) || mentions(reason, word)) entries += help_entry(flag, reason);
  return entries.empty() ? "" : "Rejected flags of Megatron\n" + entries + "\n";
}

std::string text_of_refused(const std::string& flag) {
  const RefusedFlags refused = refused_preprocess_data_flags();
  const auto reason = refused.find(flag);
  return reason == refused.end() ? "" : fmt::format("{}: {}\n", flag, reason->second);
}
}  // namespace

PreprocessDataConfig parse_preprocess_data_flags(const std::vector<std::string>& args) {
  PreprocessDataConfig config;
  FieldTable table = describe(config);
  Mistakes mistakes;
  const GivenFields given =
      parse_flags(table, args, {.refused = refused_preprocess_data_flags(), .synonyms = flag_synonyms()}, mistakes);
  check(config, table, given, mistakes);
  mistakes.throw_if_any("the flags are wrong");
  config.notes = notes_without_effect(table, given);
  if (config.tokenizer.type.starts_with("Bert") && !config.split_sentences)
    config.notes.push_back(
        "the data sets of BERT and T5 need sentences, and documents are not split; add --split-sentences unless the "
        "values of --json-keys are lists of sentences");
  return config;
}

std::string preprocess_data_help(const std::vector<std::string>& args) {
  PreprocessDataConfig defaults;
  const FieldTable table = describe(defaults);
  return help_text({.command = "megatron preprocess_data",
                    .introduction = std::string(kPreprocessIntroduction),
                    .table = table,
                    .more_about_word = refused_flags_about,
                    .about_other_flag = text_of_refused},
                   args);
}

}  // namespace megatron
