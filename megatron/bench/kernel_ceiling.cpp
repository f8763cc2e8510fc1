#include "megatron/bench/kernel_ceiling.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "megatron/bench/step_kernels.h"

namespace megatron {
namespace {

constexpr int64_t kSquare = 1024;

std::vector<KernelCase> cases_of_stage(const PretrainConfig& config, const std::set<KernelKind>& kinds, int rank) {
  const StepShapes shapes = step_shapes_of(config);
  const StageParts stage = stage_parts_of(config, rank);
  std::vector<KernelCase> cases;
  const auto add = [&](KernelKind kind, std::vector<KernelCase> more) {
    if (kinds.contains(kind)) std::ranges::move(more, std::back_inserter(cases));
  };
  add(KernelKind::kProduct, product_cases(shapes, stage));
  add(KernelKind::kAttention, attention_cases(shapes, stage));
  add(KernelKind::kMemory, memory_cases(shapes, stage, num_optimized_parameters(config, shapes, stage)));
  return cases;
}

double square_rate(DType dtype, BenchDevice& bench, const MeasureOptions& options) {
  const LinearShape shape{.name = "square", .m = kSquare, .n = kSquare, .k = kSquare};
  const KernelCase square = linear_cases(shape, dtype, dtype).front();
  return square.operations / measure(bench, square, options).best;
}

double rate_of(const MeasuredKernel& kernel) { return kernel.kernel.operations / kernel.timing.best; }

}  // namespace

double KernelCeiling::seconds() const {
  double sum = 0;
  for (const MeasuredKernel& kernel : kernels) sum += kernel.seconds();
  return sum;
}

double KernelCeiling::seconds(KernelKind kind) const {
  double sum = 0;
  for (const MeasuredKernel& kernel : kernels) sum += kernel.kernel.kind == kind ? kernel.seconds() : 0;
  return sum;
}

double KernelCeiling::operations(KernelKind kind) const {
  double sum = 0;
  for (const MeasuredKernel& kernel : kernels) sum += kernel.kernel.kind == kind ? kernel.operations() : 0;
  return sum;
}

double share_of_bandwidth(const MeasuredKernel& kernel, double copy_bandwidth) {
  return kernel.kernel.bytes / kernel.timing.best / copy_bandwidth;
}

KernelCeiling measure_cases(const std::vector<KernelCase>& cases, BenchDevice& bench, const MeasureOptions& options,
                            Progress& progress, double all_seconds) {
  const auto begin = std::chrono::steady_clock::now();
  KernelCeiling ceiling;
  progress.begin({.title = "measuring kernels", .total = std::ssize(cases)});
  for (const KernelCase& kernel : cases) {
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > all_seconds) {
      ceiling.is_complete = false;
      break;
    }
    progress.update(std::ssize(ceiling.kernels), kernel.name);
    ceiling.kernels.push_back({kernel, measure(bench, kernel, options)});
    if (kernel.kind == KernelKind::kProduct)
      ceiling.best_product_rate = std::max(ceiling.best_product_rate, rate_of(ceiling.kernels.back()));
    if (kernel.kind == KernelKind::kMemory && ceiling.copy_bandwidth == 0)
      ceiling.copy_bandwidth = measure_copy_bandwidth(bench, options);
  }
  progress.update(std::ssize(ceiling.kernels), "");
  progress.end();
  return ceiling;
}

KernelCeiling measure_ceiling(const PretrainConfig& config, const std::set<KernelKind>& kinds, BenchDevice& bench,
                              const MeasureOptions& options, Progress& progress, double all_seconds) {
  std::vector<std::vector<KernelCase>> stages;
  std::vector<KernelCase> distinct;  // ranks differ in their kernels and numbers of calls
  for (int rank = 0; rank < config.parallel.pipeline_model_parallel_size; ++rank) {
    stages.push_back(cases_of_stage(config, kinds, rank));
    for (const KernelCase& kernel : stages.back())
      if (std::ranges::find(distinct, kernel.name, &KernelCase::name) == distinct.end()) distinct.push_back(kernel);
  }
  KernelCeiling measured = measure_cases(distinct, bench, options, progress, all_seconds);
  if (kinds.contains(KernelKind::kProduct))
    measured.best_product_rate =
        std::max(measured.best_product_rate, square_rate(config.transformer.params_dtype, bench, options));
  if (!measured.is_complete) return measured;
  std::map<std::string, const MeasuredKernel*> by_name;
  for (const MeasuredKernel& kernel : measured.kernels) by_name[kernel.kernel.name] = &kernel;
  KernelCeiling busiest;
  for (const std::vector<KernelCase>& stage : stages) {
    KernelCeiling ceiling{.copy_bandwidth = measured.copy_bandwidth, .best_product_rate = measured.best_product_rate};
    for (const KernelCase& kernel : stage) {
      const MeasuredKernel& like = *by_name.at(kernel.name);
      MeasuredKernel own = like;
      own.kernel.calls = kernel.calls * kernel.bytes / like.kernel.bytes;  // parts of the optimizer differ in size
      ceiling.kernels.push_back(std::move(own));
    }
    if (busiest.kernels.empty() || ceiling.seconds() > busiest.seconds()) busiest = std::move(ceiling);
  }
  return busiest;
}

std::string description_of_cases(const PretrainConfig& config) {
  std::string text;
  for (int rank = 0; rank < config.parallel.pipeline_model_parallel_size; ++rank)
    for (const KernelCase& kernel :
         cases_of_stage(config, {KernelKind::kProduct, KernelKind::kAttention, KernelKind::kMemory}, rank))
      text +=
          fmt::format("{}: {} x {} operations, {} bytes\n", kernel.name, kernel.calls, kernel.operations, kernel.bytes);
  return text;
}

}  // namespace megatron
