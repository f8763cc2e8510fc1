// What preprocess_data prints while it works and at its end.
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

  /// @param file_bytes  read of the input so far, packed ones as they are
  void add(const EncodedBatch& batch, int64_t file_bytes);
  /// Ends the bar. Prints the number of lines that were left out, and the speed.
  /// @throw DataError if all lines were left out.
  void end();

  int64_t num_documents() const { return num_documents_; }
  int64_t input_bytes() const { return input_bytes_; }

 private:
  void add_document(int64_t input_bytes);
  void add_bad_line(const std::string& text);
  double seconds() const;

  using Clock = std::chrono::steady_clock;
  Options options_;
  std::ostream& out_;
  std::ostream& err_;
  std::unique_ptr<ProgressBar> bar_;  // null unless there is a terminal
  int64_t num_documents_ = 0, input_bytes_ = 0, num_tokens_ = 0, num_bad_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace megatron
