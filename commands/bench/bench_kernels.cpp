#include "commands/bench/bench_kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "commands/bench/bench_report.h"
#include "commands/launch/launch_environment.h"
#include "commands/matmul_choices_folders.h"
#include "megatron/bench/transformer_engine.h"
#include "megatron/training/startup/device_choice.h"
#include "megatron/training/startup/matmul_choices_file.h"
#include "megatron/training/startup/matmul_precision.h"

namespace megatron {
namespace {

KernelKind kernel_kind_of(BenchKind kind) {
  if (kind == BenchKind::kGemm) return KernelKind::kProduct;
  return kind == BenchKind::kAttention ? KernelKind::kAttention : KernelKind::kMemory;
}

KernelCeiling measure_shapes(const std::vector<LinearShape>& shapes, const StepShapes& dtypes, BenchDevice& bench,
                             const MeasureOptions& options, Progress& progress) {
  std::vector<KernelCase> cases;
  for (const LinearShape& shape : shapes)
    for (KernelCase& kernel : linear_cases(shape, dtypes.model.params_dtype, dtypes.gradient_dtype))
      cases.push_back(std::move(kernel));
  return measure_cases(cases, bench, options, progress);
}

/// For comparison with the grouped matmuls of experts.
void add_expert_loops(const PretrainConfig& model, BenchDevice& bench, const MeasureOptions& options,
                      Progress& progress, KernelCeiling& ceiling) {
  const std::vector<KernelCase> loops = expert_loop_cases(step_shapes_of(model), stage_parts_of(model, 0));
  if (loops.empty()) return;
  std::ranges::move(measure_cases(loops, bench, options, progress).kernels, std::back_inserter(ceiling.kernels));
}

/// The library of --transformer-engine, or the one that the loader finds; nothing, with a line of the reason, if none.
std::optional<TransformerEngine> transformer_engine_of(const BenchConfig& config, DeviceKind device,
                                                       BenchReport& report) {
  if (config.kind != BenchKind::kOps) return std::nullopt;
  if (device != DeviceKind::kCuda) {
    require<ConfigError>(
        !config.transformer_engine,
        "--transformer-engine {}: its ops run on a GPU, and this measurement runs on the CPU. Leave it out, "
        "or give --device cuda.",
        config.transformer_engine.value_or(""));
    return std::nullopt;
  }
  if (config.transformer_engine) return TransformerEngine(*config.transformer_engine);
  try {
    return TransformerEngine(TransformerEngine::kName);
  } catch (const NotSupported& reason) {
    report.line(fmt::format("No comparison with Transformer Engine. {}", reason.what()));
    return std::nullopt;
  }
}

void report_total(KernelKind kind, const KernelCeiling& ceiling, const PowerUse& use, const DeviceFacts& facts,
                  BenchReport& report) {
  const double seconds = ceiling.seconds(kind), operations = ceiling.operations(kind);
  std::vector<JsonField> fields = {{"seconds", seconds}, {"operations", operations}};
  std::string text = fmt::format("total: {} in a step", time_text(seconds));
  if (kind == KernelKind::kMemory) {
    double bytes = 0;
    for (const MeasuredKernel& kernel : ceiling.kernels) bytes += kernel.bytes();
    const double share = bytes / seconds / ceiling.copy_bandwidth;
    text += fmt::format(", {}: {:.1f} % of the copy's bandwidth", rate_text(bytes / seconds, "B/s"), 100 * share);
    fields.push_back({"bytes", bytes});
    fields.push_back({"copy_bytes_per_second", ceiling.copy_bandwidth});
    fields.push_back({"share_of_copy_bandwidth", share});
  } else {
    text += fmt::format(", {}", rate_text(operations / seconds, "FLOP/s"));
    fields.push_back({"flops", operations / seconds});
  }
  add_power(use, fields);
  report.line(fmt::format("{}; power {}", text, power_text(use, facts.meter.get())));
  report.row("total", std::move(fields));
}

}  // namespace

void bench_kernels(const BenchConfig& config, const PretrainConfig& model, int num_threads, FileSystem& files,
                   Progress& progress) {
  DeviceNeeds needs = device_needs_of(model, num_threads);
  needs.num_ranks = 1;  // kernels of one rank are measured, whatever the layout
  const DeviceChoice choice = choose_device(needs);
  const DeviceFacts facts = facts_of(choice);
  BenchReport report(config, model, facts, num_threads, files, progress);
  report.line(choice.text);
  report.line(config.shapes.empty() ? description_of(model) : std::string(name_of(model.transformer.params_dtype)));
  const std::optional<TransformerEngine> engine = transformer_engine_of(config, choice.kind, report);
  if (engine) report.line(fmt::format("compared with Transformer Engine (TE): {}", engine->path()));
  BenchDevice bench(choice.kind, num_threads);
  const AgreedMatmulChoices products =
      matmul_choices_for(choice, model, matmul_choices_folders(own_program()), files, {});
  if (config.kind == BenchKind::kGemm && !products.text.empty()) report.line(products.text);
  prepare_matmuls(bench.device(), model.precision, products.choices);
  const KernelKind kind = kernel_kind_of(config.kind);
  const MeasureOptions options = measure_options_of(config, facts.cache_bytes);
  PowerRecorder power(facts.meter.get());
  power.start();
  KernelCeiling ceiling =
      config.shapes.empty() ? measure_ceiling(model, {kind}, bench, options, progress)
                            : measure_shapes(linear_shapes_of(config), step_shapes_of(model), bench, options, progress);
  if (config.kind == BenchKind::kGemm && config.shapes.empty())
    add_expert_loops(model, bench, options, progress, ceiling);
  const PowerUse use = power.stop();
  const PeerTimings peers = engine ? measure_peers(ceiling, bench, *engine, options, progress) : PeerTimings();
  report_kernels(ceiling, peers, use, report);
  report_total(kind, ceiling, use, facts, report);
}

}  // namespace megatron
