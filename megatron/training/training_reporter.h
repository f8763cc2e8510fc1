// Everything that a run says about its numbers: the log line, JSON lines, TensorBoard, Weights & Biases, the loss
// curve.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "megatron/telemetry/event_file_writer.h"
#include "megatron/telemetry/jsonl_writer.h"
#include "megatron/telemetry/loss_averages.h"
#include "megatron/telemetry/loss_curve.h"
#include "megatron/telemetry/progress.h"
#include "megatron/telemetry/training_tags.h"
#include "megatron/telemetry/wandb_run.h"
#include "megatron/training/trainer.h"
#include "megatron/training/training_speed.h"

namespace megatron {

/// Outside world of a reporter; members must outlive it.
struct ReporterOutputs {
  FileSystem& files;
  Progress& progress;  // log lines go through message(), so that they stay above a bar
  const std::atomic<int64_t>* straggler_switch = nullptr;  // see PretrainEnvironment
  bool is_writer = true;  // one rank prints and writes files; the others take part in what it gathers
  std::string host;       // for names of event files
  int64_t process_id = 0;
  const DeviceSpeed* speed = nullptr;  // that steps are held against; null: unknown
};

/// Fed once a step by every rank; prints as Megatron does. A file that cannot be written any more, as on a full disk,
/// is given up with a warning: the run goes on without it. One that does not take the first line ends the run. Not
/// thread-safe.
class TrainingReporter {
 public:
  /// @throw IoError for files that cannot be made.
  TrainingReporter(const PretrainConfig& config, const ReporterOutputs& outputs, Timers& timers);

  /// Before a step: the time that it waited for its batches.
  void add_data_wait(double seconds) { data_wait_seconds_ += seconds; }
  /// After a step: counts it, and prints when --log-interval is due (and after the first step of the process).
  void step(Trainer& trainer, const TrainStepResult& result, int64_t global_batch_size);
  /// Megatron's block of dashes, JSON line and tags. @param suffix  "" or "-name" of one of several sets.
  void validation(Trainer& trainer, std::string_view suffix, std::string_view prefix, const LossSum& loss);
  /// The block of dashes, which says "validation" as Megatron's does, and a JSON line.
  void test(Trainer& trainer, std::string_view prefix, const LossSum& loss);
  /// The times of all ranks since they were last printed, in ms. All ranks call with the same names.
  void print_timers(Trainer& trainer, std::span<const std::string_view> names);
  /// Until the end of a block, time does not count as time of the interval: evaluations, checkpoints.
  [[nodiscard]] Timers::Pause pause_interval();
  void message(std::string_view line) {
    if (outputs_.is_writer) outputs_.progress.message(line);
  }
  /// A message that --logging-level may leave out.
  void info(std::string_view line) {
    if (outputs_.is_writer) outputs_.progress.info(line);
  }
  void warning(std::string_view text) {
    if (outputs_.is_writer) outputs_.progress.warning(text);
  }
  /// That the file of `flag` gets no further lines.
  void warn_of_given_up(std::string_view flag, const IoError& error);

 private:
  void print_interval(Trainer& trainer, const TrainStepResult& result, int64_t global_batch_size);
  std::optional<double> params_norm(Trainer& trainer) const;
  void print_memory(Trainer& trainer);
  void report_stragglers(Trainer& trainer, const std::vector<std::vector<double>>& seconds);
  void print_step_timers(Trainer& trainer, double seconds_per_iteration, std::optional<double> tflops);
  void write_line(std::span<const JsonField> fields);
  void write_events(const std::function<void(EventFileWriter&)>& write);
  void write_curves(const TrainingProgress& progress, const TaggedScalars& tags);
  void draw_loss_curve();
  void give_up(std::string_view flag, const IoError& error);
  void write_step_tags(Trainer& trainer, const TrainStepResult& result, int64_t global_batch_size);

  const PretrainConfig& config_;
  ReporterOutputs outputs_;
  Timers& timers_;
  LossAverages averages_;
  LossCurve loss_curve_;
  std::optional<JsonlWriter> jsonl_;
  std::optional<EventFileWriter> events_;
  std::optional<WandbRun> wandb_;
  int num_memory_reports_ = 0;
  double unprinted_seconds_ = 0;  // of the first step, whose line does not end an interval
  double data_wait_seconds_ = 0;  // of the interval
  bool is_first_step_ = true;
  bool draws_loss_curve_ = false;
  bool measures_stragglers_ = false;
};

}  // namespace megatron
