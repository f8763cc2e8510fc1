#include "commands/preprocess_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <ostream>

#include "commands/terminal.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int64_t kBadLinesShown = 10;
constexpr int64_t kBytesInMegabyte = 1'000'000;

}  // namespace

PreprocessReport::PreprocessReport(const Options& options, std::ostream& out, std::ostream& err)
    : options_(options), out_(out), err_(err) {
  const ProgressBarOptions shown = bar_options(out, false);
  if (!shown.is_terminal) return;
  bar_ = std::make_unique<ProgressBar>(shown, [&out](std::string_view text) { out << text << std::flush; });
  bar_->begin({.title = "preprocessing", .unit = "MB", .total = options.total_file_bytes / kBytesInMegabyte});
}

double PreprocessReport::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void PreprocessReport::add(const EncodedBatch& batch, int64_t file_bytes) {
  for (const std::string& text : batch.bad) add_bad_line(text);
  for (const EncodedDocuments& documents : batch.keys) num_tokens_ += std::ssize(documents.ids);
  for (const int64_t input_bytes : batch.input_bytes) add_document(input_bytes);
  if (!bar_) return;
  const auto tokens_per_second = static_cast<int64_t>(static_cast<double>(num_tokens_) / seconds());
  bar_->update(file_bytes / kBytesInMegabyte,
               fmt::format("{} docs, {} tokens/s", count_text(num_documents_), count_text(tokens_per_second)));
}

/// MB of the line are MiB of input.
void PreprocessReport::add_document(int64_t input_bytes) {
  input_bytes_ += input_bytes;
  if (++num_documents_ % options_.log_interval != 0 || bar_) return;
  const double elapsed = seconds();
  err_ << fmt::format("Processed {} documents ({} docs/s, {} MB/s).\n", num_documents_,
                      static_cast<double>(num_documents_) / elapsed,
                      static_cast<double>(input_bytes_) / 1024 / 1024 / elapsed)
       << std::flush;
}

void PreprocessReport::add_bad_line(const std::string& text) {
  if (++num_bad_ > kBadLinesShown) return;
  const std::string line = fmt::format("left out: {}", text);
  if (bar_)
    bar_->message(line);
  else
    err_ << line << '\n';
}

void PreprocessReport::end() {
  if (bar_) bar_->end();
  require<DataError>(num_bad_ == 0 || num_bad_ < num_documents_,
                     "--on-bad-line skip: all {} lines are bad. Correct --json-keys or --input-format", num_bad_);
  if (num_bad_ > 0)
    err_ << fmt::format("{} lines were left out; the first {} are named above\n", num_bad_,
                        std::min(num_bad_, kBadLinesShown));
  const double elapsed = seconds();
  out_ << fmt::format("{} documents and {} tokens in {}: {:.1f} MB/s, {} tokens/s\n", num_documents_, num_tokens_,
                      duration_text(elapsed), static_cast<double>(input_bytes_) / kBytesInMegabyte / elapsed,
                      count_text(static_cast<int64_t>(static_cast<double>(num_tokens_) / elapsed)));
}

}  // namespace megatron
