#include "megatron/training/training_reporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <iterator>

#include "megatron/core/cuda_devices.h"
#include "megatron/models/gpt/gpt_mtp.h"
#include "megatron/telemetry/straggler_report.h"
#include "megatron/telemetry/timers_report.h"
#include "megatron/telemetry/training_tags.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/expert_metrics.h"
#include "megatron/training/planning/theoretical_flops.h"
#include "megatron/training/planning/theoretical_memory.h"

namespace megatron {
namespace {

constexpr std::string_view kIntervalTimer = "interval-time";

/// The parts of a step in Megatron's order. The list is the same on every rank, whether it has such work or not.
constexpr auto kStepTimers = std::to_array<std::string_view>({
    "forward-backward",
    "forward-compute",
    "backward-compute",
    "batch-generator",
    "forward-recv",
    "forward-send",
    "backward-recv",
    "backward-send",
    "non-tensor-parallel-grads-all-reduce",
    "embedding-grads-all-reduce",
    "all-grads-sync",
    "params-all-gather",
    "optimizer-clip-main-grad",
    "optimizer-inner-step",
    "optimizer",
});

constexpr size_t kFirstInnerTimer = 1, kNumInnerTimers = 7;  // of level 2; the others are of level 1

/// --log-straggler has more measured than --timing-log-level prints. A timer of 0 is not printed.
void leave_out_above(int64_t level, std::vector<std::vector<double>>& seconds) {
  for (std::vector<double>& of_rank : seconds)
    for (size_t i = 0; i < of_rank.size(); ++i)
      if (level < (i - kFirstInnerTimer < kNumInnerTimers ? 2 : 1)) of_rank[i] = 0;
}

/// @param seconds  of kStepTimers
RankWork work_of(std::span<const double> seconds) {
  const auto sum_of = [&](std::initializer_list<std::string_view> names) {
    double sum = 0;
    for (const std::string_view name : names)
      sum += seconds[static_cast<size_t>(std::ranges::find(kStepTimers, name) - kStepTimers.begin())];
    return sum;
  };
  return {.forward = sum_of({"forward-compute"}),
          .backward = sum_of({"backward-compute"}),
          .optimizer = sum_of({"optimizer-clip-main-grad", "optimizer-inner-step"}),
          .data = sum_of({"batch-generator"}),
          .waiting = sum_of({"forward-recv", "forward-send", "backward-recv", "backward-send",
                             "non-tensor-parallel-grads-all-reduce", "embedding-grads-all-reduce", "all-grads-sync",
                             "params-all-gather"})};
}

WallTime wall_time() { return std::chrono::system_clock::now(); }

/// The mean over tokens of each loss of the model.
std::vector<NamedValue> losses_of(Trainer& trainer, const LossSum& loss) {
  const std::vector<std::string> names = trainer.model().losses();
  std::vector<NamedValue> losses;
  for (size_t i = 0; i < names.size(); ++i)
    losses.push_back({names[i], LossSum{.sum = loss.of_each.at(i), .num_tokens = loss.num_tokens}.mean()});
  return losses;
}

/// The losses of the model, and those that layers add to its gradients.
std::vector<NamedValue> losses_of(Trainer& trainer, const TrainStepResult& result) {
  std::vector<NamedValue> losses = losses_of(trainer, result.loss);
  std::ranges::copy(mean_auxiliary_losses(trainer.config(), result), std::back_inserter(losses));
  for (int64_t depth = 1; depth <= trainer.model().config().mtp.num_layers; ++depth) {
    const std::string name = mtp_loss_name(depth);
    losses.push_back({name, value_of(result.metrics, name) / static_cast<double>(result.num_micro_batches)});
  }
  return losses;
}

/// [rank][value]: what every rank of the world gives, as many on each.
std::vector<std::vector<double>> gathered(const ProcessGroup& world, const std::vector<double>& own) {
  const auto size = static_cast<int64_t>(own.size()), num_ranks = static_cast<int64_t>(world.size());
  std::vector<double> all(own.size() * static_cast<size_t>(num_ranks));
  world
      .all_gather({own.data(), DType::kFloat64, {size}, {1}}, {all.data(), DType::kFloat64, {size * num_ranks}, {1}},
                  {.site = "report"})
      .wait();
  std::vector<std::vector<double>> by_rank;
  for (auto begin = all.begin(); begin != all.end(); begin += size) by_rank.emplace_back(begin, begin + size);
  return by_rank;
}

DeviceMemoryUse memory_of(Trainer& trainer) {
  const Arena& arena = trainer.device().arena;
  return {.allocated_bytes = arena.total().live,
          .max_allocated_bytes = arena.total().peak,
          .reserved_bytes = arena.high_water_bytes(),
          .max_reserved_bytes = arena.high_water_bytes()};
}

/// The memory that all processes use of the device, or of the host of a CPU. Source: proc_meminfo(5).
int64_t device_used_bytes(const Device& device) {
  if constexpr (kHasCuda)
    if (device.kind() == DeviceKind::kCuda) return used_cuda_bytes();
  std::ifstream file("/proc/meminfo");
  int64_t total_kib = 0, available_kib = 0;
  std::string key, unit;
  for (int64_t kib = 0; file >> key >> kib && std::getline(file, unit);) {
    if (key == "MemTotal:") total_kib = kib;
    if (key == "MemAvailable:") available_kib = kib;
  }
  return 1024 * (total_kib - available_kib);
}

void set_speed(TrainingLogValues& values, const TrainingSpeed& speed, double data_wait_seconds) {
  values.data_wait_ms_per_iteration = 1e3 * data_wait_seconds;
  values.tokens_per_second = speed.tokens_per_second;
  values.tflops_per_gpu = speed.tflops_per_gpu;
  values.mfu_percent = speed.mfu_percent;
  values.kernel_ceiling_percent = speed.kernel_ceiling_percent;
}

}  // namespace

TrainingReporter::TrainingReporter(const PretrainConfig& config, const ReporterOutputs& outputs, Timers& timers)
    : config_(config), outputs_(outputs), timers_(timers) {
  measures_stragglers_ = config.faults.log_straggler && !config.faults.disable_straggler_on_startup;
  if (measures_stragglers_) timers_.set_log_level(2);
  const LoggingConfig& logging = config.logging;
  if (!outputs.is_writer) {
    timers_.start(kIntervalTimer, 0);
    return;
  }
  if (logging.log_loss_curve && logging.log_jsonl && outputs_.files.exists(*logging.log_jsonl))
    loss_curve_ = parse_loss_curve(read_file(outputs_.files, *logging.log_jsonl));
  draws_loss_curve_ = logging.log_loss_curve.has_value();
  if (logging.log_jsonl) jsonl_.emplace(outputs_.files, *logging.log_jsonl);
  if (logging.wandb_project) {
    wandb_.emplace(outputs_.files,
                   WandbRunOptions{.directory = logging.wandb_save_dir.value(),
                                   .project = *logging.wandb_project,
                                   .name = logging.wandb_exp_name.value_or(""),
                                   .entity = logging.wandb_entity.value_or(""),
                                   .host = outputs_.host,
                                   .process_id = outputs_.process_id,
                                   .start = wall_time()},
                   arguments_texts(config));
    info(fmt::format("an offline run of Weights & Biases is in {0}; 'wandb sync {0}' uploads it",
                     parent_path(wandb_->path())));
  }
  if (logging.tensorboard_dir) {
    events_.emplace(outputs_.files, *logging.tensorboard_dir,
                    EventFileIdentity{.host = outputs_.host, .process_id = outputs_.process_id}, wall_time());
    write_events([&](EventFileWriter& events) {
      for (const auto& [name, value] : arguments_texts(config)) events.add_text(wall_time(), 0, name, value);
    });
  }
  timers_.start(kIntervalTimer, 0);
}

void TrainingReporter::step(Trainer& trainer, const TrainStepResult& result, int64_t global_batch_size) {
  const std::vector<NamedValue> losses = losses_of(trainer, result);
  result.optimizer.success ? averages_.add(losses) : averages_.add_skipped(losses);
  if (result.was_repeated) averages_.count_repetition();
  const int64_t iteration = trainer.progress().iteration;
  if (outputs_.is_writer && config_.logging.log_loss_curve) loss_curve_.add_training(iteration, losses.front().value);
  const bool has_curves = config_.logging.tensorboard_dir || config_.logging.wandb_project;
  if (has_curves && iteration % config_.logging.tensorboard_log_interval == 0)
    write_step_tags(trainer, result, global_batch_size);
  // Megatron prints after the first iteration too, without starting the interval anew.
  if (iteration % config_.logging.log_interval == 0 || is_first_step_)
    print_interval(trainer, result, global_batch_size);
  is_first_step_ = false;
}

Timers::Pause TrainingReporter::pause_interval() { return timers_.pause(kIntervalTimer); }

/// All ranks take part.
std::optional<double> TrainingReporter::params_norm(Trainer& trainer) const {
  return config_.logging.log_params_norm ? std::optional(trainer.params_norm()) : std::nullopt;
}

void TrainingReporter::print_interval(Trainer& trainer, const TrainStepResult& result, int64_t global_batch_size) {
  const TrainingProgress& progress = trainer.progress();
  const bool is_due = progress.iteration % config_.logging.log_interval == 0;
  const double seconds = timers_.take_seconds(kIntervalTimer) + unprinted_seconds_;
  unprinted_seconds_ = is_due ? 0 : seconds;
  const double seconds_per_iteration = seconds / static_cast<double>(averages_.num_iterations());
  TrainingLogValues values{.time = wall_time(),
                           .iteration = progress.iteration,
                           .train_iterations = config_.training.train_iters.value(),
                           .consumed_samples = progress.consumed_train_samples,
                           .skipped_samples = progress.skipped_train_samples,
                           .elapsed_ms_per_iteration = 1e3 * seconds_per_iteration,
                           .learning_rate = trainer.scheduler().lr(),
                           .global_batch_size = global_batch_size,
                           .losses = averages_.means(),
                           .extra = expert_metrics_by_layer(config_, result),
                           .loss_scale = trainer.optimizer().loss_scale(),
                           .repeated_iterations = averages_.repeated_iterations(),
                           .skipped_iterations = averages_.skipped_iterations(),
                           .nan_iterations = averages_.nan_iterations()};
  const TrainingSpeed speed = training_speed(config_, outputs_.speed ? *outputs_.speed : DeviceSpeed{},
                                             global_batch_size, seconds_per_iteration);
  if (result.optimizer.success) {
    values.grad_norm = result.optimizer.grad_norm;
    if (result.optimizer.num_zeros) values.num_zeros = static_cast<double>(*result.optimizer.num_zeros);
  }
  values.params_norm = params_norm(trainer);
  values.max_attention_logit = result.max_attention_logit;
  if (config_.logging.log_throughput)
    set_speed(values, speed, data_wait_seconds_ / static_cast<double>(averages_.num_iterations()));
  else if (config_.logging.kernel_ceiling)
    values.kernel_ceiling_percent = speed.kernel_ceiling_percent;
  message(training_log_line(values));
  set_speed(values, speed, data_wait_seconds_ / static_cast<double>(averages_.num_iterations()));
  write_line(training_fields(values));
  write_curves(progress, speed_tags(values));
  draw_loss_curve();
  print_memory(trainer);
  if (!is_due) return;
  averages_.reset();
  data_wait_seconds_ = 0;
  print_step_timers(trainer, seconds_per_iteration,
                    config_.logging.log_throughput ? values.tflops_per_gpu : std::nullopt);
}

/// After the first two lines, and then every --log-memory-interval.
void TrainingReporter::print_memory(Trainer& trainer) {
  const std::optional<int64_t>& interval = config_.logging.log_memory_interval;
  const int64_t iteration = trainer.progress().iteration;
  if (num_memory_reports_ >= 2 && !(interval && iteration % *interval == 0)) return;
  if (++num_memory_reports_ <= 2) {
    const BatchSize batch = microbatch_calculator_of(config_).at(trainer.progress().consumed_train_samples);
    info(theoretical_memory_report(memory_sizes_of(config_), batch.num_microbatches));
  }
  const DeviceMemoryUse own = memory_of(trainer);
  const auto dp_rank = static_cast<double>(trainer.groups().dp_cp.rank());
  const bool logs_device = config_.logging.log_device_memory_used;
  const auto all = gathered(trainer.groups().world,
                            {dp_rank, static_cast<double>(own.allocated_bytes),
                             static_cast<double>(own.max_allocated_bytes), static_cast<double>(own.reserved_bytes),
                             logs_device ? static_cast<double>(device_used_bytes(trainer.device())) : 0});
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] > 0) continue;  // a data-parallel replica needs as much
    const auto reserved = static_cast<int64_t>(all[rank][3]);
    info(memory_line(
        static_cast<int>(rank), iteration,
        {.allocated_bytes = static_cast<int64_t>(all[rank][1]),
         .max_allocated_bytes = static_cast<int64_t>(all[rank][2]),
         .reserved_bytes = reserved,
         .max_reserved_bytes = reserved,
         .device_used_bytes = logs_device ? std::optional(static_cast<int64_t>(all[rank][4])) : std::nullopt}));
  }
  if (num_memory_reports_ == 1) info(trainer.device().arena.table());
}

void TrainingReporter::print_timers(Trainer& trainer, std::span<const std::string_view> names) {
  const auto seconds = gathered(trainer.groups().world, timers_.take_seconds(names));
  const TimingOption option = parse_timing_option(config_.logging.timing_log_option);
  if (const auto report = timers_report(option, names, seconds, 1)) info(*report);
}

void TrainingReporter::print_step_timers(Trainer& trainer, double seconds_per_iteration, std::optional<double> tflops) {
  auto seconds = gathered(trainer.groups().world, timers_.take_seconds(kStepTimers));
  const auto num_iterations = static_cast<double>(config_.logging.log_interval);
  if (config_.faults.log_straggler) report_stragglers(trainer, seconds);
  leave_out_above(config_.logging.timing_log_level, seconds);
  const TimingOption option = parse_timing_option(config_.logging.timing_log_option);
  if (const auto report = timers_report(option, kStepTimers, seconds, num_iterations)) info(*report);
  if (!config_.logging.log_timers_to_tensorboard) return;
  std::vector<NamedValue> timers;
  for (size_t i = 0; i < kStepTimers.size(); ++i) {
    double longest = 0;
    for (const auto& of_rank : seconds) longest = std::max(longest, of_rank[i]);
    if (longest > 0) timers.push_back({std::string(kStepTimers[i]), longest / num_iterations});
  }
  write_curves(trainer.progress(), interval_tags(seconds_per_iteration, tflops, timers));
}

/// A request of the controller takes effect from the next interval on.
void TrainingReporter::report_stragglers(Trainer& trainer, const std::vector<std::vector<double>>& seconds) {
  if (measures_stragglers_) {
    const auto num_iterations = static_cast<double>(config_.logging.log_interval);
    std::vector<RankWork> ranks;
    ranks.reserve(seconds.size());
    for (const std::vector<double>& of_rank : seconds) ranks.push_back(work_of(of_rank) / num_iterations);
    const double operations =
        theoretical_flops(config_.transformer, *config_.training.global_batch_size, config_.model.seq_length.value());
    info(straggler_report({.time = wall_time(),
                           .forward_operations = operations / 3 / static_cast<double>(ranks.size()),
                           .num_listed = static_cast<size_t>(config_.faults.straggler_minmax_count)},
                          ranks));
  }
  const int64_t own = outputs_.straggler_switch ? outputs_.straggler_switch->load() : 0;
  const auto num_switches = static_cast<int64_t>(gathered(trainer.groups().world, {static_cast<double>(own)})[0][0]);
  measures_stragglers_ = config_.faults.disable_straggler_on_startup == (num_switches % 2 != 0);
  timers_.set_log_level(static_cast<int>(measures_stragglers_ ? 2 : config_.logging.timing_log_level));
}

void TrainingReporter::write_line(std::span<const JsonField> fields) try {
  if (jsonl_) jsonl_->write(fields);
} catch (const IoError& error) {
  jsonl_.reset();
  give_up("--log-jsonl", error);
}

void TrainingReporter::write_events(const std::function<void(EventFileWriter&)>& write) try {
  if (events_) write(*events_);
} catch (const IoError& error) {
  events_.reset();
  give_up("--tensorboard-dir", error);
}

void TrainingReporter::write_curves(const TrainingProgress& progress, const TaggedScalars& tags) {
  write_events([&](EventFileWriter& events) {
    write_tags(events, wall_time(), progress.iteration, progress.consumed_train_samples, tags);
  });
  try {
    std::vector<NamedValue> values = tags.by_iteration;
    values.push_back({"samples vs steps", static_cast<double>(progress.consumed_train_samples)});
    if (wandb_) wandb_->log(wall_time(), progress.iteration, values);
  } catch (const IoError& error) {
    wandb_.reset();
    give_up("--wandb-project", error);
  }
}

void TrainingReporter::draw_loss_curve() try {
  if (!draws_loss_curve_) return;
  const std::string& path = *config_.logging.log_loss_curve;
  outputs_.files.create_directories(parent_path(path));
  replace_file(outputs_.files, path, loss_curve_.svg("Training and validation loss", AxisScale::kLinear));
} catch (const IoError& error) {
  draws_loss_curve_ = false;
  give_up("--log-loss-curve", error);
}

/// To be called from a handler. What cannot even take the first line is a mistake of the command line.
void TrainingReporter::give_up(std::string_view flag, const IoError& error) {
  if (is_first_step_) throw;
  warn_of_given_up(flag, error);
}

void TrainingReporter::warn_of_given_up(std::string_view flag, const IoError& error) {
  warning(fmt::format("{}: {}. Training goes on without it; make room for the next run.", flag, error.what()));
}

void TrainingReporter::write_step_tags(Trainer& trainer, const TrainStepResult& result, int64_t global_batch_size) {
  const LoggingConfig& logging = config_.logging;
  IterationScalars scalars{.learning_rate = trainer.scheduler().lr(),
                           .batch_size = global_batch_size,
                           .losses = losses_of(trainer, result),
                           .skipped_samples = trainer.progress().skipped_train_samples};
  if (logging.log_loss_scale_to_tensorboard) scalars.loss_scale = trainer.optimizer().loss_scale();
  if (logging.log_world_size_to_tensorboard) scalars.world_size = config_.parallel.world_size;
  if (result.optimizer.success) {
    scalars.grad_norm = result.optimizer.grad_norm;
    if (result.optimizer.num_zeros) scalars.num_zeros = static_cast<double>(*result.optimizer.num_zeros);
  }
  scalars.params_norm = params_norm(trainer);
  scalars.max_attention_logit = result.max_attention_logit;
  if (logging.log_memory_to_tensorboard) {
    scalars.memory = memory_of(trainer);
    scalars.num_allocations = trainer.device().arena.num_live_blocks();
  }
  scalars.extra = expert_metrics_by_layer(config_, result);
  write_curves(trainer.progress(), iteration_tags(scalars));
}

void TrainingReporter::validation(Trainer& trainer, std::string_view suffix, std::string_view prefix,
                                  const LossSum& loss) {
  const std::vector<NamedValue> losses = losses_of(trainer, loss);
  if (!outputs_.is_writer) return;
  message(validation_log_block(suffix, prefix, losses));
  const TrainingProgress& progress = trainer.progress();
  write_line(evaluation_fields(wall_time(), progress.iteration, fmt::format("validation{}", suffix), losses));
  if (suffix.empty()) loss_curve_.add_validation(progress.iteration, losses.front().value);
  draw_loss_curve();
  write_curves(progress, validation_tags(losses, suffix, config_.logging.log_validation_ppl_to_tensorboard));
}

void TrainingReporter::test(Trainer& trainer, std::string_view prefix, const LossSum& loss) {
  const std::vector<NamedValue> losses = losses_of(trainer, loss);
  message(validation_log_block("", prefix, losses));
  write_line(evaluation_fields(wall_time(), trainer.progress().iteration, "test", losses));
}

}  // namespace megatron
