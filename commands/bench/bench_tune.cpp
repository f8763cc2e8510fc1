#include "commands/bench/bench_tune.h"

#include <fmt/core.h>

#include <atomic>
#include <numeric>
#include <optional>
#include <ostream>
#include <utility>

#include "commands/bench/bench_report.h"
#include "commands/exit_code.h"
#include "commands/launch/command_ranks.h"
#include "commands/matmul_choices_folders.h"
#include "commands/terminal.h"
#include "megatron/bench/device_facts.h"
#include "megatron/bench/tune_products.h"
#include "megatron/comm/texts.h"
#include "megatron/training/pretrain.h"
#include "megatron/training/startup/matmul_choices_file.h"
#include "megatron/training/trainer.h"
#include "megatron/training/training_data.h"

namespace megatron {
namespace {

constexpr std::string_view kTuneBench = "bench";
using kernels::MatmulChoices;
using kernels::MatmulKey;

/// The matmuls of one training step of this rank.
std::vector<MatmulKey> products_of_step(PretrainConfig model, const CommandRanks& ranks, const OwnRank& own,
                                        FileSystem& files) {
  std::vector<MatmulKey> products;
  SilentProgress silent;
  const std::atomic<int> no_signal{0};
  PretrainEnvironment environment{
      .files = files, .progress = silent, .signal = no_signal, .num_threads = ranks.num_threads, .world = own.world};
  environment.device = ranks.device;
  environment.gpu_ranks = own.gpu_ranks;
  environment.on_step = [&](Trainer& trainer, const TrainStepResult&) {
    if constexpr (kHasCuda) products = kernels::used_matmuls(trainer.device().cuda_stream()).products;
  };
  model.launch.matmul_choices = kNoMatmulChoices;
  pretrain(model, *tokenizer_of(model.tokenizer), environment);
  return products;
}

/// The matmuls of all ranks: a shape that several have is that of the first.
MatmulChoices gathered(const MatmulChoices& choices, World* world) {
  if (!world) return choices;
  std::vector<int> ranks(static_cast<size_t>(world->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  MatmulChoices all{.gpu = choices.gpu, .library_version = choices.library_version};
  for (const std::string& json :
       gather_texts(world->split("tuned products", {ranks}).value(), to_json(choices), "tuned products")) {
    MatmulChoices more = kernels::matmul_choices_from_json(json, "another rank");
    kernels::require_made_for(more, all.gpu, all.library_version, "another rank");
    all.choices.merge(more.choices);
  }
  return all;
}

void report(const MatmulChoices& tuned, BenchReport& report) {
  constexpr double kMicro = 1e-6;
  report.line(fmt::format("{:<78}{:>12}{:>12}{:>9}{:>15}", "product", "first", "chosen", "gain", "rate"));
  double first = 0, chosen = 0;
  for (const auto& [key, choice] : tuned.choices) {
    const double operations =
        2.0 * static_cast<double>(key.m) * static_cast<double>(key.n) * static_cast<double>(key.k);
    const double seconds = kMicro * choice.microseconds, first_seconds = kMicro * choice.first_microseconds;
    first += first_seconds, chosen += seconds;
    report.line(fmt::format("{:<78}{:>12}{:>12}{:>7.1f} %{:>15}", text_of(key), time_text(first_seconds),
                            time_text(seconds), 100 * (first_seconds / seconds - 1),
                            rate_text(operations / seconds, "FLOP/s")));
    report.row(text_of(key),
               {{"seconds", seconds}, {"seconds_of_first_choice", first_seconds}, {"operations", operations}});
  }
  report.line(fmt::format("one matmul of each shape: {} with the library's first choices, {} with these",
                          time_text(first), time_text(chosen)));
}

/// Adds to the file's entries if they are for the same GPU and library, else replaces them.
void keep(MatmulChoices tuned, const std::string& path, FileSystem& files, BenchReport& report) {
  const size_t num_measured = tuned.choices.size();
  if (files.exists(path)) {
    MatmulChoices before = kernels::matmul_choices_from_json(read_file(files, path), path);
    if (before.gpu == tuned.gpu && before.library_version == tuned.library_version)
      tuned.choices.merge(before.choices);
    else
      report.line(fmt::format("{} held choices for {} with cuBLASLt {}; they are replaced", path, before.gpu,
                              before.library_version));
  }
  files.create_directories(parent_path(path));
  replace_file(files, path, to_json(tuned));
  report.line(fmt::format("{}: {} matmul shapes, {} of them measured now", path, tuned.choices.size(), num_measured));
}

std::string path_of(const PretrainConfig& model, const std::string& gpu, const FileSystem& files) {
  if (model.launch.matmul_choices) return *model.launch.matmul_choices;
  std::string folder = "benchmarks/tuned";
  for (const std::string& near : matmul_choices_folders(own_program()))
    if (files.exists(parent_path(near))) {
      folder = near;
      break;
    }
  return join_path(folder, kernels::matmul_choices_file_name(gpu));
}

void run(const BenchConfig& config, const PretrainConfig& model, const CommandRanks& ranks, const OwnRank& own,
         std::ostream& out) {
  PosixFileSystem files;
  const DeviceChoice& device = ranks.device;
  ProgressBar bar(bar_options(out, own.world != nullptr), [&](std::string_view text) { out << text << std::flush; });
  SilentProgress silent;
  const bool is_first = !own.world || own.world->rank() == 0;
  Progress& progress = is_first ? static_cast<Progress&>(bar) : silent;
  progress.message(device.text);
  std::vector<MatmulKey> products;
  if (config.shapes.empty()) products = products_of_step(model, ranks, own, files);
  BenchDevice bench(device.kind, ranks.num_threads, device.cuda_device);
  if (own.gpu_ranks) own.gpu_ranks->set_compute_stream(bench.device().cuda_stream().stream);
  if (!config.shapes.empty()) {
    const StepShapes dtypes = step_shapes_of(model);
    products = products_of(bench, linear_shapes_of(config), dtypes.model.params_dtype, dtypes.gradient_dtype);
  }
  MatmulChoices tuned =
      gathered(tune_products(bench, device.gpu, products, {.seconds = config.seconds}, progress), own.world);
  if (!is_first) return;
  BenchReport lines(config, model, {.name = device.gpu, .kind = device.kind}, ranks.num_threads, files, progress);
  report(tuned, lines);
  keep(std::move(tuned), path_of(model, device.gpu, files), files, lines);
}

}  // namespace

int bench_tune(const BenchConfig& config, const LaunchEnvironment& launch, std::vector<std::string> command_line,
               std::ostream& out, std::ostream& err) {
  std::optional<PretrainConfig> model;
  CommandRanks ranks;
  const int status = run_command(kTuneBench, err, [&] {
    run_before_meeting(launch, [&] {
      PretrainConfig read = pretrain_config_of(config, launch.size);
      require<NotSupported>(!read.precision.takes_tf32(),
                            "--tune measures matmuls in fp32, and with --float32-matmul-precision high training "
                            "uses TF32 with cuBLASLt's own choice of algorithms. Leave one of the two out.");
      ranks = command_ranks(read, launch, std::move(command_line));
      require<NotSupported>(ranks.device.kind == DeviceKind::kCuda,
                            "--tune chooses among cuBLASLt's algorithms, on a GPU; {}.", ranks.device.text);
      model = std::move(read);
    });
  });
  if (!model) return status;
  return run_on_ranks(ranks, err, [&](const OwnRank& own) { run(config, *model, ranks, own, out); });
}

}  // namespace megatron
