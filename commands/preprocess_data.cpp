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
#include <optional>
#include <ostream>
#include <span>
#include <system_error>
#include <thread>

#include "commands/exit_code.h"
#include "commands/optimal_num_workers.h"
#include "commands/preprocess_data_config.h"
#include "commands/preprocess_output.h"
#include "commands/preprocess_report.h"
#include "commands/preprocess_state.h"
#include "commands/punkt_model.h"
#include "commands/signal_watch.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/atomic_file.h"
#include "megatron/datasets/temporary_file.h"
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/tokenizers/corpus_encoder.h"
#include "megatron/tokenizers/sentence_splitter.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
/// The files that match a pattern, sorted by name. A file of exactly that name has precedence.
std::vector<std::string> files_of(const std::string& pattern) {
  if (std::filesystem::exists(pattern)) return {pattern};
  require<DataError>(!pattern.starts_with("s3://"),
                     "--input {}: objects are not read. Copy them first, for instance with: aws s3 cp", pattern);
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

/// The part of each input file that goes to one output.
struct Part {
  int64_t number;
  std::string prefix;
  TextRange range;
};

std::vector<Part> parts_of(const PreprocessDataConfig& config) {
  if (!config.text_split) return {{0, config.output_prefix, {}}};
  return {{0, config.output_prefix + "_train", {0, *config.text_split}},
          {1, config.output_prefix + "_val", {*config.text_split, 1}}};
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

/// Everything that a run works with.
struct PreprocessRun {
  const PreprocessDataConfig& config;
  const std::vector<std::string>& files;
  const Tokenizer& tokenizer;
  const DocumentEncoding& encoding;
  const std::atomic<int>& signal;  ///< ends the work once it is not 0
  std::ostream& out;
  std::ostream& err;
};

/// Writes one part and saves the state now and then, so that another run can continue where this one is killed.
class PartWriter {
 public:
  /// @param fingerprint  none: the part is not saved
  PartWriter(const PreprocessRun& run, const Part& part, PreprocessReport& report,
             std::optional<std::string> fingerprint)
      : run_(run), part_(part), report_(report), state_path_(preprocess_state_path(run.config.output_prefix)) {
    const PreprocessOutput::Options options{.prefix = part.prefix,
                                            .keys = run.config.json_keys,
                                            .level = run.config.level(),
                                            .token_type = optimal_token_type(run.tokenizer.vocab_size())};
    is_saved_ = fingerprint.has_value();
    if (is_saved_) remove_abandoned_files(state_path_);
    if (is_saved_) state_.fingerprint = *fingerprint;
    if (is_saved_ && run.config.resume) continue_output(options);
    if (output_) return;
    std::error_code ignored;  // where nothing can be removed, the files of the output cannot be made either
    if (is_saved_) std::filesystem::remove(state_path_, ignored);
    output_.emplace(options);
  }

  void write() {
    const int64_t divisor = run_.config.keep_sequential_samples ? 1 : run_.config.partitions;
    for (; state_.pass < divisor; ++state_.pass, state_.position = {}) write_pass(divisor);
  }

  PreprocessOutput& output() { return *output_; }

 private:
  using Clock = std::chrono::steady_clock;

  void continue_output(const PreprocessOutput::Options& options) {
    std::optional<PreprocessState> found = read_preprocess_state(state_path_);
    if (!found) return;
    const bool may_have_bad_lines = run_.config.on_bad_line == OnBadLine::kSkip || found->counts.bad_lines == 0;
    if (found->fingerprint != state_.fingerprint || !may_have_bad_lines) {
      run_.err << fmt::format("{} is of a run with other flags, files or another build; this run starts anew.\n",
                              state_path_);
      return;
    }
    try {
      output_.emplace(options, found->output);
    } catch (const Error& error) {
      run_.err << fmt::format("{} cannot be used, so this run starts anew: {}\n", state_path_, error.what());
      return;
    }
    state_ = std::move(*found);
    has_state_ = true;
    report_.continue_from(state_.counts);
    run_.err << fmt::format("Continues behind document {} of the run that was ended.\n", state_.counts.documents);
  }

  void write_pass(int64_t divisor) {
    DocumentSource source({.files = run_.files,
                           .format = run_.config.document_format(),
                           .divisor = divisor,
                           .remainder = state_.pass,
                           .start = state_.position,
                           .range = part_.range});
    const int64_t num_workers = run_.config.workers.value_or(std::max(1u, std::thread::hardware_concurrency()));
    const int64_t bytes_before = (part_.number * divisor + state_.pass) * total_size_of(run_.files);
    encode_corpus(source, run_.tokenizer, run_.encoding, num_workers, [&](const EncodedBatch& batch) {
      end_on_signal();
      output_->add(batch);
      report_.add(batch, bytes_before + source.file_bytes());
      state_.position = batch.end;
      if (is_saved_ && Clock::now() - last_save_ >= std::chrono::duration<double>(run_.config.resume_interval)) save();
    });
  }

  void end_on_signal() {
    if (run_.signal == 0) return;
    require(has_state_, "ended by a signal; partial output has been removed");
    save();
    throw Error("ended by a signal; the same command continues where this one was");
  }

  void save() {
    state_.counts = report_.counts();
    state_.output = output_->save();
    write_preprocess_state(state_path_, state_);
    last_save_ = Clock::now();
    has_state_ = true;
  }

  const PreprocessRun& run_;
  const Part& part_;
  PreprocessReport& report_;
  std::string state_path_;
  std::optional<PreprocessOutput> output_;
  PreprocessState state_;
  bool is_saved_ = false, has_state_ = false;
  Clock::time_point last_save_ = Clock::now();
};

/// Says whether a run can be continued: from a pipe and in text that is cut into parts it cannot.
bool can_be_continued(const PreprocessDataConfig& config, const std::vector<std::string>& files) {
  return !config.text_split && !config.make_char_vocab && total_size_of(files) > 0;
}

/// Encodes the files into the parts' outputs.
void write_parts(const PreprocessRun& run) {
  const PreprocessDataConfig& config = run.config;
  const int64_t divisor = config.keep_sequential_samples ? 1 : config.partitions;
  const std::vector<Part> parts = parts_of(config);
  std::optional<std::string> fingerprint;
  if (can_be_continued(config, run.files))
    fingerprint = preprocess_fingerprint(config, run.files, run.tokenizer, run.encoding.sentences);
  PreprocessReport report(
      {.log_interval = config.log_interval, .total_file_bytes = total_size_of(run.files) * divisor * std::ssize(parts)},
      run.out, run.err);
  std::vector<std::unique_ptr<PartWriter>> writers;
  for (const Part& part : parts) {
    writers.push_back(std::make_unique<PartWriter>(run, part, report, fingerprint));
    writers.back()->write();
  }
  require<DataError>(report.counts().input_bytes > 0, "--input {}: there are no documents in {}. Give files with text.",
                     joined(config.input, " "), run.files.size() == 1 ? "the file" : "the files");
  report.end();
  for (const auto& writer : writers) writer->output().finalize(run.out);
  std::error_code ignored;
  if (fingerprint) std::filesystem::remove(preprocess_state_path(config.output_prefix), ignored);
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
  write_parts({config, files, *tokenizer, encoding, signal, out, err});
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
