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
#include "commands/preprocess_data_config.h"
#include "commands/signal_watch.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/atomic_file.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/tokenizers/corpus_encoder.h"
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

/// Counts documents and prints Megatron's line at each interval. MB are MiB of input.
class ProgressLines {
 public:
  ProgressLines(int64_t interval, std::ostream& err) : interval_(interval), err_(err) {}
  int64_t input_bytes() const { return input_bytes_; }
  int64_t num_documents() const { return num_documents_; }
  void add_document(int64_t input_bytes) {
    input_bytes_ += input_bytes;
    if (++num_documents_ % interval_ != 0) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const double megabytes = static_cast<double>(input_bytes_) / 1024 / 1024;
    err_ << fmt::format("Processed {} documents ({} docs/s, {} MB/s).\n", num_documents_,
                        static_cast<double>(num_documents_) / seconds, megabytes / seconds)
         << std::flush;
  }

 private:
  using Clock = std::chrono::steady_clock;
  int64_t interval_;
  std::ostream& err_;
  int64_t num_documents_ = 0, input_bytes_ = 0;
  Clock::time_point start_ = Clock::now();
};

/// Lines that are left out (--on-bad-line skip).
class BadLines {
 public:
  explicit BadLines(std::ostream& err) : err_(err) {}
  void add(const std::string& text) {
    if (++number_ <= kShown) err_ << fmt::format("left out: {}\n", text);
  }
  void print_count() const {
    if (number_ > 0) err_ << fmt::format("{} lines were left out; the first {} are named above\n", number_, shown());
  }
  /// @throw DataError if no line was good.
  void require_some_good(int64_t num_documents) const {
    require<DataError>(number_ == 0 || number_ < num_documents,
                       "--on-bad-line skip: all {} lines are bad. Correct --json-keys or --input-format", number_);
  }

 private:
  static constexpr int64_t kShown = 10;
  int64_t shown() const { return std::min(number_, kShown); }

  std::ostream& err_;
  int64_t number_ = 0;
};

/// One pair of files for each key.
class Output {
 public:
  Output(const std::string& prefix, const std::vector<std::string>& keys, TokenType token_type)
      : token_type_(token_type) {
    for (const std::string& key : keys) {
      prefixes_.push_back(fmt::format("{}_{}_document", prefix, key));
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

/// @param signal  ends the work once it is not 0.
void preprocess(const PreprocessDataConfig& config, const std::vector<std::string>& files,
                const std::atomic<int>& signal, std::ostream& out, std::ostream& err) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(config.tokenizer);
  require<ConfigError>(!config.append_eod || tokenizer->eod(), "--append-eod: {} has no end of document",
                       config.tokenizer.type);
  const int64_t num_workers = config.workers.value_or(std::max(1u, std::thread::hardware_concurrency()));
  const bool lines = config.input_format == InputFormat::kJsonl;
  const DocumentEncoding encoding = {.json_keys = lines ? config.json_keys : std::vector<std::string>(),
                                     .append_eod = config.append_eod,
                                     .skip_bad = config.on_bad_line == OnBadLine::kSkip};
  const int64_t divisor = config.keep_sequential_samples ? 1 : config.partitions;

  std::vector<std::unique_ptr<Output>> outputs;
  ProgressLines progress(config.log_interval, err);
  BadLines bad_lines(err);
  for (const Part& part : parts_of(config)) {
    outputs.push_back(
        std::make_unique<Output>(part.prefix, config.json_keys, optimal_token_type(tokenizer->vocab_size())));
    for (int64_t remainder = 0; remainder < divisor; ++remainder) {
      DocumentSource source({.files = files,
                             .format = config.document_format(),
                             .divisor = divisor,
                             .remainder = remainder,
                             .range = part.range});
      encode_corpus(source, *tokenizer, encoding, num_workers, [&](const EncodedBatch& batch) {
        require(signal == 0, "ended by a signal; partial output has been removed");
        outputs.back()->add(batch);
        for (const std::string& text : batch.bad) bad_lines.add(text);
        for (const int64_t input_bytes : batch.input_bytes) progress.add_document(input_bytes);
      });
    }
  }
  require<DataError>(progress.input_bytes() > 0, "--input {}: there are no documents in {}. Give files with text.",
                     joined(config.input, " "), files.size() == 1 ? "the file" : "the files");
  bad_lines.require_some_good(progress.num_documents());
  for (const auto& output : outputs) output->finalize(out);
  bad_lines.print_count();
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
