// The lines that preprocess_data prints while it works and at its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "megatron/telemetry/progress.h"
#include "megatron/tokenizers/document_encoder.h"

namespace megatron {

/// Counts documents, bytes, tokens and lines that are left out. On a terminal it shows a bar with the speed and the
/// time left, elsewhere Megatron's line at each interval.
class PreprocessReport {
 public:
  struct Options {
    int64_t log_interval = 1000;   ///< documents between two lines
    int64_t total_file_bytes = 0;  ///< that will be read of the input, packed ones as they are; 0: not known
  };
  PreprocessReport(const Options& options, std::ostream& out, std::ostream& err);

  struct Counts {
    int64_t documents = 0, input_bytes = 0, tokens = 0, bad_lines = 0;
    int64_t file_bytes = 0;  ///< read of the files, packed ones as they are
  };
  const Counts& counts() const { return counts_; }
  /// Adds the work of the run that this one continues. It does not count for the speed.
  void continue_from(const Counts& counts);

  /// @param file_bytes  read of the input so far, packed ones as they are
  void add(const EncodedBatch& batch, int64_t file_bytes);
  /// Ends the bar. Prints the number of lines that were left out, and the speed.
  /// @throw DataError if all lines were left out.
  void end();

 private:
  void begin_bar();
  void add_document(int64_t input_bytes);
  void add_bad_line(const std::string& text);
  double seconds() const;

  using Clock = std::chrono::steady_clock;
  Options options_;
  std::ostream& out_;
  std::ostream& err_;
  std::unique_ptr<ProgressBar> bar_;  // null unless there is a terminal
  Counts counts_, before_;            // before_: of the run that this one continues
  Clock::time_point start_ = Clock::now();
};

}  // namespace megatron
