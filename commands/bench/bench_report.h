// The output of megatron bench: text and JSON lines.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "commands/bench/bench_config.h"
#include "megatron/bench/device_facts.h"
#include "megatron/bench/kernel_ceiling.h"
#include "megatron/bench/peer_timing.h"
#include "megatron/telemetry/jsonl_writer.h"

namespace megatron {

/// Writes the results. Every row has "bench", "case", "name" (of the model or shape), "device",
/// "threads", "ranks", "gpus", "dtype", "commit", "date"; where a model is measured also the class of precision (bytes
/// that a parameter takes: "weight_bytes", "gradient_bytes", "main_param_bytes", "moment_bytes", their sum; "tf32",
/// "deterministic"), "recompute", batches and layout.
class BenchReport {
 public:
  /// @throw IoError if the file of --json cannot be written
  BenchReport(const BenchConfig& config, const PretrainConfig& model, const DeviceFacts& facts, int num_threads,
              FileSystem& files, Progress& progress);

  /// Prints a line of text.
  void line(std::string_view text) { progress_.message(text); }
  /// A row of the results. @param what  "fc1 forward", "total"
  void row(std::string_view what, std::vector<JsonField> fields);

 private:
  std::vector<JsonField> common_;
  std::optional<JsonlWriter> json_;
  Progress& progress_;
};

/// "GPT: 12 layers, h 768, ...", the model that was measured.
std::string description_of(const PretrainConfig& config);
/// "71.3 us", "1.204 s".
std::string time_text(double seconds);
/// "412 GFLOP/s", "1.21 PFLOP/s"
std::string rate_text(double per_second, std::string_view unit);

/// Fields of watts, clock and energy; null where they are not available.
void add_power(const PowerUse& use, std::vector<JsonField>& fields);
/// "power 612 W, clock 1480 MHz", or that it is not available.
std::string power_text(const PowerUse& use, const PowerMeter* meter);

/// A table of each kernel, alone and in a step, and rows of it. @param use  while all of them ran
/// @param peers  Transformer Engine's times, in columns of their own unless there are none; notes below the table say
/// which part of an op its call leaves out, and why a time is missing
void report_kernels(const KernelCeiling& ceiling, const PeerTimings& peers, const PowerUse& use, BenchReport& report);

}  // namespace megatron
