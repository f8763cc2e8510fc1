#include "megatron/bench/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megatron/core/device_timer.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

constexpr int64_t kSmallestCopy = int64_t{1} << 24;  // bytes

/// The quantile of sorted numbers, interpolated.
double quantile(const std::vector<double>& sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], place - std::floor(place));
}

/// Sets of operands that fill rotation_bytes, at most one for each call.
std::vector<KernelCall> prepare_calls(BenchDevice& bench, const KernelCase& kernel, const MeasureOptions& options) {
  const int64_t before = bench.device().arena.total().live;
  std::vector<KernelCall> calls = {kernel.prepare(bench.context())};
  const int64_t bytes = std::max<int64_t>(1, bench.device().arena.total().live - before);
  const int64_t wanted = (options.rotation_bytes + bytes - 1) / bytes;
  const int64_t num_sets = std::clamp<int64_t>(wanted, 1, options.warm_ups + options.repeats);
  while (std::ssize(calls) < num_sets) calls.push_back(kernel.prepare(bench.context()));
  return calls;
}

}  // namespace

Timing timing_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double median = quantile(seconds, 0.5);
  return {.best = seconds.front(),
          .median = median,
          .spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / median,
          .num_calls = std::ssize(seconds)};
}

Timing measure(BenchDevice& bench, const KernelCase& kernel, const MeasureOptions& options) {
  const std::vector<KernelCall> calls = prepare_calls(bench, kernel, options);
  int64_t next = 0;
  const auto run = [&](int64_t) { calls[static_cast<size_t>(next++ % std::ssize(calls))](); };
  const std::vector<double> warm_up = seconds_of_calls(bench.device(), std::max<int64_t>(1, options.warm_ups), run);
  const double affordable = options.seconds / std::max(1e-9, *std::ranges::min_element(warm_up));
  const auto fewest = std::min(options.fewest_repeats, options.repeats);
  const auto repeats =
      static_cast<int64_t>(std::clamp(affordable, static_cast<double>(fewest), static_cast<double>(options.repeats)));
  return timing_of(seconds_of_calls(bench.device(), repeats, run));
}

double measure_copy_bandwidth(BenchDevice& bench, const MeasureOptions& options) {
  const Shape shape{std::max(options.rotation_bytes, kSmallestCopy) / size_of(DType::kFloat32)};
  KernelCase copy{.name = "copy"};
  copy.bytes = 2.0 * static_cast<double>(shape[0] * size_of(DType::kFloat32));
  copy.prepare = [shape](const Context& ctx) -> KernelCall {
    return [&ctx, x = random_tensor(ctx, shape, DType::kFloat32),
            y = constant_tensor(ctx, shape, DType::kFloat32, 0)]() mutable {
      launch(ctx, [&](auto& stream) { kernels::copy(stream, {.x = std::as_const(x).view(), .y = y.view()}); });
    };
  };
  MeasureOptions once = options;
  once.rotation_bytes = 0;
  return copy.bytes / measure(bench, copy, once).best;
}

}  // namespace megatron
