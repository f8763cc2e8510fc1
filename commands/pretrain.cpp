#include "commands/pretrain.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "commands/cache_folder.h"
#include "commands/exit_code.h"
#include "commands/interruption.h"
#include "commands/launch/command_ranks.h"
#include "commands/launch/launch_environment.h"
#include "commands/launch/rank_thread_failures.h"
#include "commands/matmul_choices_folders.h"
#include "commands/signal_watch.h"
#include "commands/straggler_controller.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/process_identity.h"
#include "megatron/bench/device_speed.h"
#include "megatron/core/host_memory_limit.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/pretrain.h"
#include "megatron/training/startup/matmul_choices_file.h"
#include "megatron/training/startup/output_paths.h"
#include "megatron/training/training_data.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

std::string command_of(const ModelFamily& family) { return "pretrain_" + family.name; }

int number_of_signal(const std::string& name) {
  if (name == "SIGTERM") return SIGTERM;
  if (name == "SIGINT") return SIGINT;
  if (name == "SIGUSR1") return SIGUSR1;
  if (name == "SIGUSR2") return SIGUSR2;
  throw ConfigError(fmt::format("--exit-signal {}: choose SIGTERM, SIGINT, SIGUSR1 or SIGUSR2", name));
}

PretrainConfig read_config(const ModelFamily& family, const std::vector<std::string>& args,
                           const LaunchEnvironment& launch, const FurtherMistakes& further) {
  PosixFileSystem files;
  const auto stored_arguments = [&](const CheckpointConfig& checkpoint) {
    return Checkpointer::stored_arguments(files, checkpoint);
  };
  return parse_pretrain_gpt(args, launch.size, stored_arguments, RuleSet::kRunnable, further, family);
}

/// Passes progress on and keeps how many iterations are done; -1 before there are any to do.
class CountedProgress final : public Progress {
 public:
  CountedProgress(Progress& shown, std::atomic<int64_t>& num_done) : shown_(shown), num_done_(num_done) {}
  void begin(const ProgressTask& task) override {
    num_done_ = task.start;
    shown_.begin(task);
  }
  void update(int64_t done, std::string_view note) override {
    num_done_ = done;
    shown_.update(done, note);
  }
  void end() override { shown_.end(); }
  void message(std::string_view line) override { shown_.message(line); }
  void info(std::string_view line) override { shown_.info(line); }
  void warning(std::string_view text) override { shown_.warning(text); }

 private:
  Progress& shown_;
  std::atomic<int64_t>& num_done_;
};

/// The state that other threads and this rank share.
struct Exchange {
  const std::atomic<int>& signal;  // number of a received one
  std::atomic<int64_t>& num_done;  // iterations
  std::atomic<bool>& has_started;  // from then on a received signal ends the training as Megatron's does
};

int64_t logging_level_of(const PretrainConfig& config) {
  constexpr int64_t kInfo = 20;
  if (config.logging.logging_level) return *config.logging.logging_level;
  const std::optional<std::string> text = process_environment()("MEGATRON_LOGGING_LEVEL");
  return text ? read_logging_level(*text) : kInfo;
}

/// Training goes on without a port that another has.
void start_straggler_controller(const FaultConfig& faults, Progress& progress,
                                std::optional<StragglerController>& controller) try {
  if (faults.log_straggler) controller.emplace(static_cast<int>(faults.straggler_ctrlr_port));
} catch (const CommError& error) {
  progress.warning(
      fmt::format("--straggler-ctrlr-port {}: {} The report of stragglers cannot be switched; give "
                  "another port.",
                  faults.straggler_ctrlr_port, error.what()));
}

/// Measures the rates with which the speed of training is compared. Returns no function where the kernels are not
/// measured: for a model outside of the transformer family, and for sequences that ranks share.
std::function<DeviceSpeed(const PretrainConfig&, const AgreedMatmulChoices&)> speed_measurement(
    const PretrainConfig& config, const CommandRanks& ranks, FileSystem& files) {
  const TransformerConfig& model = config.transformer;
  const bool has_measured_layers =
      config.family.has_measured_layers && !model.mla && !model.moe && model.mtp.num_layers == 0;
  if (!has_measured_layers || config.parallel.context_parallel_size > 1) return {};
  return [&ranks, &files](const PretrainConfig& resolved, const AgreedMatmulChoices& products) {
    const bool is_cpu = ranks.device.kind == DeviceKind::kCpu;
    return device_speed({.config = resolved,
                         .device = ranks.device,
                         .num_threads = ranks.num_threads,
                         .capacity_bytes = is_cpu ? host_memory_for_arenas(ranks.launch.local_size) : 0,
                         .products = products.choices,
                         .build = build_of_kernels(process_environment()),
                         .cache_folder = cache_folder(process_environment())},
                        files);
  };
}

/// The command line of this run with more flags.
ConfigWithFlags command_with_flags(const CommandRanks& ranks, const Tokenizer& tokenizer, const ModelFamily& family) {
  return [&](const std::string& flags) -> std::optional<PretrainConfig> {
    std::vector<std::string> words(ranks.words.begin() + 1, ranks.words.end());
    std::istringstream more(flags);
    std::copy(std::istream_iterator<std::string>(more), {}, std::back_inserter(words));
    try {
      PretrainConfig config = read_config(family, words, ranks.launch, {});
      set_vocab_size(config, tokenizer.vocab_size());
      return config;
    } catch (const Error&) {  // what the flags contradict
      return std::nullopt;
    }
  };
}

void train(const PretrainConfig& config, const Tokenizer& tokenizer, const CommandRanks& ranks, const OwnRank& own,
           const Exchange& exchange, std::ostream& out, std::ostream& err) {
  World* world = own.world;
  PosixFileSystem files;
  ProgressBar bar(bar_options(out, world != nullptr), [&](std::string_view text) { out << text << std::flush; });
  SilentProgress silent;
  const bool is_first = !world || world->rank() == 0;
  LeveledProgress leveled(bar, logging_level_of(config));
  CountedProgress progress(is_first ? static_cast<Progress&>(leveled) : silent, exchange.num_done);
  std::optional<StragglerController> stragglers;
  if (is_first) start_straggler_controller(config.faults, progress, stragglers);
  pretrain(config, tokenizer,
           {.files = files,
            .progress = progress,
            .signal = exchange.signal,
            .signal_name = config.training.exit_signal,
            .host = host_name(),
            .process_id = getpid(),
            .job_id = process_environment()("SLURM_JOB_ID").value_or(""),
            .num_threads = ranks.num_threads,
            .world = world,
            .ranks_of_host = ranks.launch.local_size,
            .is_first_of_host = ranks.launch.local_rank == 0,
            .rank_hooks = report_and_end(command_of(config.family), err),
            .on_start = [&] { exchange.has_started = true; },
            .straggler_switch = stragglers ? &stragglers->num_requests() : nullptr,
            .measure_speed = speed_measurement(config, ranks, files),
            .with_flags = command_with_flags(ranks, tokenizer, config.family),
            .matmul_choices_folders = matmul_choices_folders(own_program()),
            .device = ranks.device,
            .gpu_ranks = own.gpu_ranks});
}

/// Hears --exit-signal. Before training has started there is nothing to save: it ends the process at once.
void watch_exit_signal(const std::string& command, const std::string& name, const std::atomic<bool>& has_started,
                       std::ostream& err, std::optional<SignalWatch>& watch) {
  watch.emplace({number_of_signal(name)}, [command, name, &has_started, &err](int number) {
    if (has_started) return;
    print_error(command, fmt::format("ended by {} before the first iteration: there was nothing to save.", name), err);
    die_of_watched(number);
  });
}

/// True if Ctrl-C reaches this process; it does not under nohup or in the background of a script.
bool hears_interrupts() {
  struct sigaction action {};
  return sigaction(SIGINT, nullptr, &action) == 0 && action.sa_handler != SIG_IGN;
}

/// At Ctrl-C, says what is done and what is saved.
void watch_interrupt(const std::string& command, const CheckpointConfig& checkpoint,
                     const std::atomic<int64_t>& num_done, std::ostream& err, std::optional<SignalWatch>& watch) {
  if (!hears_interrupts()) return;
  watch.emplace({SIGINT}, [command, checkpoint, &num_done, &err](int number) {
    PosixFileSystem files;
    print_error(command, interruption_text(files, checkpoint, num_done), err);
    die_of_watched(number);
  });
}

}  // namespace

int pretrain_command(const ModelFamily& family, const std::vector<std::string>& args, std::ostream& out,
                     std::ostream& err) {
  const std::string command = command_of(family);
  std::optional<PretrainConfig> config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<CommandRanks> ranks;
  std::atomic<bool> has_started{false};
  std::atomic<int64_t> num_done{-1};
  std::optional<SignalWatch> watch, interrupt;  // begin before there are other threads
  const int status = run_command(command, err, [&] {
    if (asks_for_help(args)) {
      show_text(help_text(args, family), out);
      return;
    }
    const LaunchEnvironment launch = launch_environment(process_environment());
    run_before_meeting(launch, [&] {
      std::vector<std::string> words = {command};
      words.insert(words.end(), args.begin(), args.end());
      config = read_config(family, args, launch, [&](const PretrainConfig& parsed, Mistakes& mistakes) {
        const TrainingConfig& training = parsed.training;
        if (training.exit_signal_handler)
          mistakes.attempt({"--exit-signal"},
                           [&] { watch_exit_signal(command, training.exit_signal, has_started, err, watch); });
        const bool is_told = launch.rank == 0 && !(training.exit_signal_handler && training.exit_signal == "SIGINT");
        if (is_told) watch_interrupt(command, parsed.checkpoint, num_done, err, interrupt);
        mistakes.attempt({"--device"}, [&] { ranks = command_ranks(parsed, launch, words); });
        check_output_folders(parsed, PosixFileSystem(), launch.rank == 0, mistakes);
        tokenizer = check_data_and_tokenizer(parsed, mistakes);
      });
    });
  });
  if (!config) return status;
  if (ranks->are_to_be_started()) {  // they have theirs
    interrupt.reset();               // in the reverse order of their begin
    watch.reset();
  }
  const std::atomic<int> none{0};
  const std::atomic<int>& signal = watch ? watch->received() : none;
  if (!watch || config->training.exit_signal != "SIGTERM") ranks->place = [&] { return progress_text(num_done); };
  return run_on_ranks(*ranks, err, [&](const OwnRank& own) {
    train(*config, *tokenizer, *ranks, own, {signal, num_done, has_started}, out, err);
  });
}

}  // namespace megatron
