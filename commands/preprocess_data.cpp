#include "commands/preprocess_data.h"

#include <fmt/core.h>
#include <glob.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <span>
#include <system_error>
#include <thread>

#include "commands/exit_code.h"
#include "commands/optimal_num_workers.h"
#include "commands/preprocess_data_config.h"
#include "commands/preprocess_report.h"
#include "commands/punkt_model.h"
#include "commands/signal_watch.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/atomic_file.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/tokenizers/corpus_encoder.h"
#include "megatron/tokenizers/sentence_splitter.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
/// The files that match a pattern, sorted by name. A file of exactly that name has precedence.
std::vector<std::string> files_of(const std::string& pattern) {
  if (std::filesystem::exists(pattern)) return {pattern};
  glob_t found{};
  const std::unique_ptr<glob_t, void (*)(glob_t*)> guard(&found, globfree);
  const int status = glob(pattern.c_str(), 0, nullptr, &found);
  require<DataError>(status == 0, "--input {}: there is no such file", pattern);
  return {found.gl_pathv, found.gl_pathv + found.gl_pathc};
}

std::vector<std::string> input_files(const PreprocessDataConfig& config) {
  std::vector<std::string> files;
  for (const std::string& pattern : config.input) {
    const std::vector<std::string> found = files_of(pattern);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

void make_char_vocab(const std::vector<std::string>& files, const std::string& path) {
  require<ConfigError>(!std::filesystem::exists(path),
                       "--make-char-vocab: {} exists. Leave the flag out to use it, or remove it", path);
  DocumentSource source({.files = files, .format = DocumentFormat::kWholeFile});
  std::string characters;
  while (const std::optional<RawBatch> batch = source.next()) {
    require_utf8(batch->bytes);
    for (const std::string& character : distinct_characters(batch->bytes)) characters += character;
  }
  const std::string vocabulary = joined(distinct_characters(characters), "");
  const std::span<const std::byte> content = std::as_bytes(std::span(vocabulary));
  write_file_atomically(path, std::span(&content, 1));
}

/// One pair of files for each key.
class Output {
 public:
  /// @param level  "document" or "sentence"
  Output(const std::string& prefix, const std::vector<std::string>& keys, std::string_view level, TokenType token_type)
      : token_type_(token_type) {
    for (const std::string& key : keys) {
      prefixes_.push_back(fmt::format("{}_{}_{}", prefix, key, level));
      builders_.push_back(std::make_unique<IndexedDatasetBuilder>(
          prefixes_.back(), IndexedDatasetBuilder::Options{.token_type = token_type}));
    }
    num_tokens_.resize(keys.size());
  }

  void add(const EncodedBatch& batch) {
    for (size_t k = 0; k < builders_.size(); ++k) add(batch.keys[k], k);
  }

  /// Renames the files to their final names.
  void finalize(std::ostream& out) {
    IndexedDatasetBuilder::finalize_together(builders_);
    for (size_t k = 0; k < builders_.size(); ++k)
      out << fmt::format("{}.bin, .idx: {} documents, {} sequences, {} tokens of {}\n", prefixes_[k],
                         builders_[k]->num_documents(), builders_[k]->num_sequences(), num_tokens_[k],
                         name_of(token_type_));
  }

 private:
  void add(const EncodedDocuments& documents, size_t k) {
    std::span<const TokenId> ids = documents.ids;
    std::span<const int32_t> lengths = documents.sequence_lengths;
    for (const int32_t count : documents.num_sequences) {
      const auto of_document = lengths.first(static_cast<size_t>(count));
      const int64_t num_ids = std::accumulate(of_document.begin(), of_document.end(), int64_t{0});
      builders_[k]->add_document(ids.first(static_cast<size_t>(num_ids)), of_document);
      ids = ids.subspan(static_cast<size_t>(num_ids));
      lengths = lengths.subspan(of_document.size());
    }
    num_tokens_[k] += std::ssize(documents.ids);
  }

  TokenType token_type_;
  std::vector<std::string> prefixes_;
  std::vector<std::unique_ptr<IndexedDatasetBuilder>> builders_;
  std::vector<int64_t> num_tokens_;
};

/// The part of each input file that goes to one output.
struct Part {
  std::string prefix;
  TextRange range;
};

std::vector<Part> parts_of(const PreprocessDataConfig& config) {
  if (!config.text_split) return {{config.output_prefix, {}}};
  return {{config.output_prefix + "_train", {0, *config.text_split}},
          {config.output_prefix + "_val", {*config.text_split, 1}}};
}

std::optional<SentenceSplitter> make_splitter(const PreprocessDataConfig& config) {
  if (!config.split_sentences) return std::nullopt;
  return SentenceSplitter(find_punkt_model(config.punkt_model, config.lang), {.keep_newlines = config.keep_newlines});
}

/// Sizes of the files; 0 if one has none, as a pipe.
int64_t total_size_of(const std::vector<std::string>& files) {
  int64_t total = 0;
  for (const std::string& file : files) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) return 0;
    total += static_cast<int64_t>(std::filesystem::file_size(file, error));
  }
  return total;
}

/// Encodes the files into the parts' outputs.
/// @param signal  ends the work once it is not 0.
void write_parts(const PreprocessDataConfig& config, const std::vector<std::string>& files, const Tokenizer& tokenizer,
                 const DocumentEncoding& encoding, const std::atomic<int>& signal, std::ostream& out,
                 std::ostream& err) {
  const int64_t num_workers = config.workers.value_or(std::max(1u, std::thread::hardware_concurrency()));
  const int64_t divisor = config.keep_sequential_samples ? 1 : config.partitions;
  const std::vector<Part> parts = parts_of(config);
  std::vector<std::unique_ptr<Output>> outputs;
  PreprocessReport report(
      {.log_interval = config.log_interval, .total_file_bytes = total_size_of(files) * divisor * std::ssize(parts)},
      out, err);
  int64_t file_bytes = 0;  // of passes over the files that are complete
  for (const Part& part : parts) {
    outputs.push_back(std::make_unique<Output>(part.prefix, config.json_keys, config.level(),
                                               optimal_token_type(tokenizer.vocab_size())));
    for (int64_t remainder = 0; remainder < divisor; ++remainder) {
      DocumentSource source({.files = files,
                             .format = config.document_format(),
                             .divisor = divisor,
                             .remainder = remainder,
                             .range = part.range});
      encode_corpus(source, tokenizer, encoding, num_workers, [&](const EncodedBatch& batch) {
        require(signal == 0, "ended by a signal; partial output has been removed");
        outputs.back()->add(batch);
        report.add(batch, file_bytes + source.file_bytes());
      });
      file_bytes += source.file_bytes();
    }
  }
  require<DataError>(report.input_bytes() > 0, "--input {}: there are no documents in {}. Give files with text.",
                     joined(config.input, " "), files.size() == 1 ? "the file" : "the files");
  report.end();
  for (const auto& output : outputs) output->finalize(out);
}

void preprocess(const PreprocessDataConfig& config, const std::vector<std::string>& files,
                const std::atomic<int>& signal, std::ostream& out, std::ostream& err) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(config.tokenizer);
  require<ConfigError>(!config.append_eod || tokenizer->eod(), "--append-eod: {} has no end of document",
                       config.tokenizer.type);
  const std::optional<SentenceSplitter> splitter = make_splitter(config);
  const bool lines = config.input_format == InputFormat::kJsonl;
  const DocumentEncoding encoding = {.json_keys = lines ? config.json_keys : std::vector<std::string>(),
                                     .append_eod = config.append_eod,
                                     .skip_bad = config.on_bad_line == OnBadLine::kSkip,
                                     .sentences = splitter ? &*splitter : nullptr};
  if (config.find_optimal_num_workers) return find_optimal_num_workers(config, files, *tokenizer, encoding, out);
  write_parts(config, files, *tokenizer, encoding, signal, out, err);
}

/// Removes the vocabulary that --make-char-vocab wrote if the rest fails, as the flag does not overwrite one.
void preprocess_or_remove(const PreprocessDataConfig& config, const std::atomic<int>& signal, std::ostream& out,
                          std::ostream& err) {
  const std::vector<std::string> files = input_files(config);
  if (config.make_char_vocab) make_char_vocab(files, config.tokenizer.vocab_file);
  try {
    preprocess(config, files, signal, out, err);
  } catch (...) {
    std::error_code ignored;
    if (config.make_char_vocab) std::filesystem::remove(config.tokenizer.vocab_file, ignored);
    throw;
  }
}

/// The work ends between two batches. It may never come there: another program may write nothing into a pipe that is
/// read. Its temporary files then stay until the next run.
void die_unless_ended(int signal, const std::shared_future<void>& ended) {
  constexpr auto kPatience = std::chrono::seconds(2);
  if (ended.wait_for(kPatience) == std::future_status::timeout) die_of_watched(signal);
}

}  // namespace

int preprocess_data_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  std::promise<void> end;
  std::optional<SignalWatch> watch;
  const int status = run_command("preprocess_data", err, [&] {
    if (asks_for_help(args)) return show_text(preprocess_data_help(args), out);
    const PreprocessDataConfig config = parse_preprocess_data_flags(args);
    for (const std::string& note : config.notes) err << "megatron preprocess_data: " << note << '\n';
    watch.emplace({SIGINT, SIGTERM},  // begins before there are other threads
                  [ended = end.get_future().share()](int signal) { die_unless_ended(signal, ended); });
    preprocess_or_remove(config, watch->received(), out, err);
  });
  end.set_value();
  const int signal = watch ? watch->received().load() : 0;
  watch.reset();
  if (signal != 0 && status != 0) std::raise(signal);  // so that the caller sees an end by this signal
  return status;
}

}  // namespace megatron
