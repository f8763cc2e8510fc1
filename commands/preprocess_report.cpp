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
  begin_bar();
}

void PreprocessReport::begin_bar() {
  const ProgressBarOptions shown = bar_options(out_, false);
  if (!shown.is_terminal) return;
  bar_ = std::make_unique<ProgressBar>(shown, [this](std::string_view text) { out_ << text << std::flush; });
  bar_->begin({.title = "preprocessing",
               .unit = "MB",
               .total = options_.total_file_bytes / kBytesInMegabyte,
               .start = before_.file_bytes / kBytesInMegabyte});
}

void PreprocessReport::continue_from(const Counts& counts) {
  counts_ = before_ = counts;
  begin_bar();
}

double PreprocessReport::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

void PreprocessReport::add(const EncodedBatch& batch, int64_t file_bytes) {
  for (const std::string& text : batch.bad) add_bad_line(text);
  for (const EncodedDocuments& documents : batch.keys) counts_.tokens += std::ssize(documents.ids);
  for (const int64_t input_bytes : batch.input_bytes) add_document(input_bytes);
  counts_.file_bytes = file_bytes;
  if (!bar_) return;
  const double tokens_per_second = static_cast<double>(counts_.tokens - before_.tokens) / seconds();
  bar_->update(file_bytes / kBytesInMegabyte, fmt::format("{} docs, {} tokens/s", count_text(counts_.documents),
                                                          count_text(static_cast<int64_t>(tokens_per_second))));
}

/// MB of the line are MiB of input.
void PreprocessReport::add_document(int64_t input_bytes) {
  counts_.input_bytes += input_bytes;
  if (++counts_.documents % options_.log_interval != 0 || bar_) return;
  const double elapsed = seconds();
  const double mebibytes = static_cast<double>(counts_.input_bytes - before_.input_bytes) / 1024 / 1024;
  err_ << fmt::format("Processed {} documents ({} docs/s, {} MB/s).\n", counts_.documents,
                      static_cast<double>(counts_.documents - before_.documents) / elapsed, mebibytes / elapsed)
       << std::flush;
}

void PreprocessReport::add_bad_line(const std::string& text) {
  if (++counts_.bad_lines > kBadLinesShown) return;
  const std::string line = fmt::format("left out: {}", text);
  if (bar_)
    bar_->message(line);
  else
    err_ << line << '\n';
}

void PreprocessReport::end() {
  if (bar_) bar_->end();
  require<DataError>(counts_.bad_lines == 0 || counts_.bad_lines < counts_.documents,
                     "--on-bad-line skip: all {} lines are bad. Correct --json-keys or --input-format",
                     counts_.bad_lines);
  if (counts_.bad_lines > 0)
    err_ << fmt::format("{} lines were left out; the first {} are named above\n", counts_.bad_lines,
                        std::min(counts_.bad_lines, kBadLinesShown));
  const double elapsed = seconds();
  out_ << fmt::format("{} documents and {} tokens in {}: {:.1f} MB/s, {} tokens/s\n",
                      counts_.documents - before_.documents, counts_.tokens - before_.tokens, duration_text(elapsed),
                      static_cast<double>(counts_.input_bytes - before_.input_bytes) / kBytesInMegabyte / elapsed,
                      count_text(static_cast<int64_t>(static_cast<double>(counts_.tokens - before_.tokens) / elapsed)));
}

}  // namespace megatron
