#include "commands/bench/bench_step.h"

#include <fmt/core.h>

#include <atomic>
#include <optional>
#include <ostream>
#include <utility>

#include "commands/bench/bench_report.h"
#include "commands/bench/random_corpus.h"
#include "commands/cache_folder.h"
#include "commands/exit_code.h"
#include "commands/launch/command_ranks.h"
#include "commands/launch/rank_thread_failures.h"
#include "commands/matmul_choices_folders.h"
#include "commands/terminal.h"
#include "megatron/bench/device_speed.h"
#include "megatron/bench/kernel_ceiling.h"
#include "megatron/bench/step_rates.h"
#include "megatron/bench/step_shapes.h"
#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/training/planning/parameter_count.h"
#include "megatron/training/pretrain.h"
#include "megatron/training/profile/host_op_times.h"
#include "megatron/training/startup/matmul_choices_file.h"
#include "megatron/training/startup/matmul_precision.h"
#include "megatron/training/trainer.h"
#include "megatron/training/training_data.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using WallClock = std::chrono::system_clock;
constexpr std::string_view kStepBench = "bench";
constexpr double kMebibyte = 1 << 20;

/// Shows only the progress and the warnings of a training run.
class ProgressOfRun final : public Progress {
 public:
  explicit ProgressOfRun(Progress& shown) : shown_(shown) {}
  void begin(const ProgressTask& task) override { shown_.begin(task); }
  void update(std::int64_t done, std::string_view note) override { shown_.update(done, note); }
  void end() override { shown_.end(); }
  void message(std::string_view) override {}
  void warning(std::string_view text) override { shown_.warning(text); }

 private:
  Progress& shown_;
};

using Seconds = std::chrono::duration<double>;

/// Notes the time of each step of rank 0.
class StepRecorder {
 public:
  StepRecorder(int64_t warm_up, int64_t steps, WallClock::time_point launch, PowerMeter* meter)
      : warm_up_(warm_up), steps_(steps), launch_(launch), power_(meter) {}

  void on_step(Trainer& trainer, const TrainStepResult& result) {
    const auto now = Clock::now();
    if (++done_ == 1) first_step_seconds_ = Seconds(WallClock::now() - launch_).count();
    time_host(trainer);
    if (done_ > warm_up_) seconds_.push_back(Seconds(now - last_).count());
    if (done_ == warm_up_) power_.start();
    if (done_ == warm_up_ + steps_) {
      use_ = power_.stop();
      loss_ = result.loss.mean();
      peak_bytes_ = trainer.device().arena.high_water_bytes();
    }
    last_ = Clock::now();  // the recorder's own work is not part of the next step
  }

  int64_t num_done() const { return done_; }
  Timing timing() const { return timing_of(seconds_); }
  double first_step_seconds() const { return first_step_seconds_; }
  double loss() const { return loss_; }
  int64_t peak_bytes() const { return peak_bytes_; }
  const PowerUse& power() const { return use_; }
  /// Has no ops where none was timed.
  HostOpCosts host_costs() const { return host_clock_ ? host_clock_->times().median_step() : HostOpCosts(); }

 private:
  /// The host's time for ops is measured during the warm-up, after the first step.
  void time_host(Trainer& trainer) {
    const bool is_eager = trainer.device().kind() == DeviceKind::kCuda && !trainer.graph().is_on();
    if (done_ == 1 && warm_up_ > 1 && is_eager && !trainer.device().profiler) host_clock_.emplace(trainer.device());
    if (done_ == warm_up_ && host_clock_) host_clock_->stop();
  }

  int64_t warm_up_, steps_, done_ = 0;
  WallClock::time_point launch_;
  Clock::time_point last_;
  PowerRecorder power_;
  std::vector<double> seconds_;
  double first_step_seconds_ = 0, loss_ = 0;
  int64_t peak_bytes_ = 0;
  PowerUse use_;
  std::optional<HostOpClock> host_clock_;
};

/// The largest kinds of ops by name, and all together.
void report_host(const HostOpCosts& costs, BenchReport& report, std::vector<JsonField>& fields) {
  if (costs.num_ops == 0) return;
  report.line(fmt::format("host: {}", costs.text()));
  fields.insert(
      fields.end(),
      {{"host_ops", costs.num_ops}, {"host_us_per_op", costs.us_per_op()}, {"host_largest_kinds", costs.text()}});
}

/// The tools to measure a rank of this machine.
struct Machine {
  CommandRanks ranks;
  DeviceFacts facts;
};

/// Tokens of a step that belong to the meter's energy: a GPU's meter counts one rank, a host's all ranks on it.
double metered_tokens(const StepWork& work, const Machine& machine) {
  const double per_rank = work.tokens / static_cast<double>(work.num_ranks);
  if (machine.ranks.device.kind == DeviceKind::kCuda) return per_rank;
  const LaunchEnvironment& launch = machine.ranks.launch;
  return launch.size == 1 ? work.tokens : per_rank * launch.local_size;
}

void report_ceiling(const KernelCeiling& ceiling, double seconds, const StepRates& rates, BenchReport& report,
                    std::vector<JsonField>& fields) {
  const double products = ceiling.seconds(KernelKind::kProduct), attention = ceiling.seconds(KernelKind::kAttention);
  const double memory = ceiling.seconds(KernelKind::kMemory), percent = 100 * ceiling.seconds() / seconds;
  report.line(fmt::format("kernels alone: {} = matmuls {} ({}) + attention {} + ops {}", time_text(ceiling.seconds()),
                          time_text(products), rate_text(ceiling.operations(KernelKind::kProduct) / products, "FLOP/s"),
                          time_text(attention), time_text(memory)));
  const double ceiling_flops = rates.megatron_flops * seconds / ceiling.seconds();
  report.line(fmt::format("{:.1f} % of the kernel ceiling, which is {} by Megatron's count (--kernel-ceiling {:.4g})",
                          percent, rate_text(ceiling_flops, "FLOP/s"), ceiling_flops / 1e12));
  fields.insert(fields.end(), {{"percent_of_kernel_ceiling", percent},
                               {"ceiling_seconds", ceiling.seconds()},
                               {"ceiling_flops_megatron", ceiling_flops},
                               {"ceiling_products_seconds", products},
                               {"ceiling_attention_seconds", attention},
                               {"ceiling_ops_seconds", memory},
                               {"copy_bytes_per_second", ceiling.copy_bandwidth}});
}

/// Share of the peak by Megatron's count: the data sheet's, or on a CPU the fastest matmul that was measured.
void report_peak(const PretrainConfig& model, const Machine& machine, const std::optional<KernelCeiling>& ceiling,
                 const StepRates& rates, BenchReport& report, std::vector<JsonField>& fields) {
  std::optional<KnownPeak> peak =
      known_peak(machine.facts.name, model.transformer.params_dtype, model.precision.takes_tf32());
  if (!peak && ceiling) peak = KnownPeak{ceiling->best_product_rate, "fastest matmul measured"};
  if (!peak) return report.line("MFU: unknown, the peak of this device is not in the table");
  const double mfu = rates.megatron_flops / peak->flops;
  report.line(fmt::format("MFU {:.1f} % of {} ({})", 100 * mfu, rate_text(peak->flops, "FLOP/s"), peak->source));
  fields.insert(fields.end(), {{"mfu", mfu}, {"peak_flops", peak->flops}, {"peak_source", std::string(peak->source)}});
}

void report_step(const BenchConfig& config, const PretrainConfig& model, const Machine& machine,
                 const StepRecorder& steps, const std::optional<KernelCeiling>& ceiling, BenchReport& report) {
  const Timing timing = steps.timing();
  const StepWork work = step_work_of(model);
  const StepRates rates = rates_of(work, timing.median);
  report.line(fmt::format("step: median {}, best {}, spread {:.1f} %, over {} steps after {}", time_text(timing.median),
                          time_text(timing.best), 100 * timing.spread, timing.num_calls, config.warm_up));
  report.line(fmt::format("{:.0f} tokens/s of a rank, {} by Megatron's count, {} by 6 N + attention",
                          rates.tokens_per_second, rate_text(rates.megatron_flops, "FLOP/s"),
                          rate_text(rates.six_n_flops, "FLOP/s")));
  std::vector<JsonField> fields = {{"seconds", timing.median},
                                   {"best_seconds", timing.best},
                                   {"spread", timing.spread},
                                   {"steps", timing.num_calls},
                                   {"warm_up", config.warm_up},
                                   {"tokens_per_step", work.tokens},
                                   {"tokens_per_second_per_rank", rates.tokens_per_second},
                                   {"flops_megatron", rates.megatron_flops},
                                   {"flops_6n_attention", rates.six_n_flops},
                                   {"parameters", num_model_parameters(model)},
                                   {"loss", steps.loss()},
                                   {"memory_bytes", steps.peak_bytes()},
                                   {"seconds_to_first_step", steps.first_step_seconds()}};
  report_peak(model, machine, ceiling, rates, report, fields);
  if (ceiling) report_ceiling(*ceiling, timing.median, rates, report, fields);
  report_host(steps.host_costs(), report, fields);
  add_power(steps.power(), fields);
  std::string energy = "not available";
  if (steps.power().watts) {
    const double joules = *steps.power().watts * timing.median / metered_tokens(work, machine);
    fields.push_back({"joules_per_token", joules});
    energy = fmt::format("{:.3g} J/token", joules);
  }
  report.line(fmt::format("power {}; energy {}", power_text(steps.power(), machine.facts.meter.get()), energy));
  report.line(fmt::format("loss {:.6f} after {} steps; memory {:.1f} MiB; first step done after {}", steps.loss(),
                          config.warm_up + config.steps, static_cast<double>(steps.peak_bytes()) / kMebibyte,
                          time_text(steps.first_step_seconds())));
  report.row("step", std::move(fields));
}

/// Before anything is trained, that the kernels of all stages can be measured.
void require_measurable(const PretrainConfig& model) try {
  for (int rank = 0; rank < model.parallel.pipeline_model_parallel_size; ++rank) stage_parts_of(model, rank);
} catch (const NotSupported& error) {
  throw NotSupported(fmt::format("{} Or give --no-ceiling, to measure the step alone.", error.what()));
}

/// Training runs of this model then compare their speed with it. A cache that cannot be written is skipped.
void keep_for_training(const PretrainConfig& model, const Machine& machine, const kernels::MatmulChoices& products,
                       const KernelCeiling& ceiling, FileSystem& files) try {
  keep_device_speed({.config = model,
                     .device = machine.ranks.device,
                     .num_threads = machine.ranks.num_threads,
                     .products = products,
                     .build = build_of_kernels(process_environment()),
                     .cache_folder = cache_folder(process_environment())},
                    ceiling, files);
} catch (const IoError&) {
}

/// The flag --launch-time for ranks that this process starts.
std::vector<std::string> launch_time_flag(WallClock::time_point start) {
  return {"--launch-time", fmt::format("{}", Seconds(start.time_since_epoch()).count())};
}

/// Trains on every rank; then measures the kernels and reports on rank 0.
void run(const BenchConfig& config, const PretrainConfig& model, const Machine& machine, const OwnRank& own,
         WallClock::time_point start, std::ostream& out, std::ostream& err) {
  PosixFileSystem files;
  const DeviceChoice& device = machine.ranks.device;
  const int num_threads = machine.ranks.num_threads;
  const bool is_reporter = !own.world || own.world->rank() == 0;
  ProgressBar bar(bar_options(out, own.world != nullptr), [&](std::string_view text) { out << text << std::flush; });
  SilentProgress silent;
  Progress& shown = is_reporter ? static_cast<Progress&>(bar) : silent;
  ProgressOfRun progress(shown);
  std::optional<BenchReport> report;
  if (is_reporter) {
    report.emplace(config, model, machine.facts, num_threads, files, shown);
    report->line(device.text);
    report->line(description_of(model));
  }
  const auto launch =
      config.launch_time
          ? WallClock::time_point(std::chrono::duration_cast<WallClock::duration>(Seconds(*config.launch_time)))
          : start;
  StepRecorder steps(config.warm_up, config.steps, launch, machine.facts.meter.get());
  const std::atomic<int> no_signal{0};
  PretrainEnvironment environment{
      .files = files, .progress = progress, .signal = no_signal, .num_threads = num_threads, .world = own.world};
  environment.rank_hooks = report_and_end(kStepBench, err);
  AgreedMatmulChoices products;
  environment.on_matmul_choices = [&](const AgreedMatmulChoices& agreed) {
    products = agreed;
    if (report && !agreed.text.empty()) report->line(agreed.text);
  };
  environment.on_transports = [&](const std::string& text) { report->line(text); };
  environment.on_step = [&](Trainer& trainer, const TrainStepResult& result) {
    const bool tells = steps.num_done() == 0 && report;
    if (tells && !products.choices.choices.empty()) report->line(matmul_use_text(trainer.device()));
    if constexpr (kHasCuda)
      if (tells && trainer.device().kind() == DeviceKind::kCuda) {
        const std::string attention = kernels::own_attention_text(trainer.device().cuda_stream());
        if (!attention.empty()) report->line(attention);
      }
    steps.on_step(trainer, result);
  };
  environment.device = device;
  environment.gpu_ranks = own.gpu_ranks;
  environment.matmul_choices_folders = matmul_choices_folders(own_program());
  pretrain(model, *tokenizer_of(model.tokenizer), environment);
  if (!report) return;
  std::optional<KernelCeiling> ceiling;
  if (config.ceiling) {
    BenchDevice bench(device.kind, num_threads, device.cuda_device);
    prepare_matmuls(bench.device(), model.precision, products.choices);
    ceiling = measure_ceiling(model, {KernelKind::kProduct, KernelKind::kAttention, KernelKind::kMemory}, bench,
                              measure_options_of(config, machine.facts.cache_bytes), shown);
    keep_for_training(model, machine, products.choices, *ceiling, files);
  }
  report_step(config, model, machine, steps, ceiling, *report);
}

}  // namespace

int bench_step(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> command_line,
               WallClock::time_point start, std::ostream& out, std::ostream& err) {
  std::optional<PretrainConfig> model;
  std::optional<RandomCorpus> corpus;
  Machine machine;
  const int status = run_command(kStepBench, err, [&] {
    run_before_meeting(launch, [&] {
      PretrainConfig read = pretrain_config_of(config, launch.size);
      if (config.ceiling) require_measurable(read);
      machine.ranks = command_ranks(read, launch, std::move(command_line));
      if (machine.ranks.are_to_be_started() && !config.launch_time)
        std::ranges::copy(launch_time_flag(start), std::back_inserter(machine.ranks.words));
      if (!machine.ranks.are_to_be_started()) machine.facts = facts_of(machine.ranks.device);
      if (!machine.ranks.are_to_be_started() && !names_data(config.model_arguments)) {
        BenchConfig with_data = config;
        corpus.emplace(read);
        std::ranges::copy(corpus->flags(), std::back_inserter(with_data.model_arguments));
        read = pretrain_config_of(with_data, launch.size);
      }
      model = std::move(read);
    });
  });
  if (!model) return status;
  return run_on_ranks(machine.ranks, err,
                      [&](const OwnRank& own) { run(config, *model, machine, own, start, out, err); });
}

}  // namespace megatron
