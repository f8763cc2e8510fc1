#include "megatron/bench/peer_timing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "megatron/bench/transformer_engine.h"
#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

constexpr double kDeviations = 8;

std::vector<float> values_of(const Context& ctx, const Tensor& x) {
  if (x.dtype() == DType::kFloat64) {
    const std::vector<double> values = read_values<double>(ctx.device, x);
    return {values.begin(), values.end()};
  }
  Tensor wide = ctx.empty("wide", x.shape(), DType::kFloat32);
  launch(ctx, [&](auto& stream) { kernels::copy(stream, {.x = x.view(), .y = wide.view()}); });
  return read_values<float>(ctx.device, wide);
}

/// The difference in units of the rounding bound.
double difference_of(const Context& ctx, const PeerResult& result) {
  const std::vector<float> ours = values_of(ctx, result.ours), theirs = values_of(ctx, result.theirs);
  double largest = 0;
  for (const float value : ours) largest = std::max(largest, std::abs(static_cast<double>(value)));
  const double walk = kDeviations * epsilon(DType::kFloat32) * std::sqrt(static_cast<double>(result.length)) * largest;
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (ours[i] == theirs[i]) continue;
    const double a = ours[i], b = theirs[i];
    const double difference =
        std::abs(a - b) / (2 * epsilon(result.rounded) * std::max(std::abs(a), std::abs(b)) + walk);
    if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, difference);
  }
  return worst;
}

void compare(const Context& ctx, const KernelCase& kernel, const TransformerEngine& engine, PeerTiming& peer) {
  const PeerCall call = kernel.peer(ctx, engine);
  call.ours();
  call.theirs();
  for (const PeerResult& result : call.results) {
    const double difference = difference_of(ctx, result);
    if (!peer.result.empty() && difference <= peer.difference) continue;
    peer.difference = difference;
    peer.result = result.name;
  }
}

}  // namespace

PeerTiming measure_peer(BenchDevice& bench, const KernelCase& kernel, const TransformerEngine& engine,
                        const MeasureOptions& options) {
  PeerTiming peer;
  try {
    compare(bench.context(), kernel, engine, peer);
    const KernelCase theirs{.name = kernel.name,
                            .prepare = [&](const Context& ctx) { return kernel.peer(ctx, engine).theirs; }};
    peer.timing = measure(bench, theirs, options);
  } catch (const NotSupported& error) {
    peer.error = error.what();  // it has no function for this
  } catch (const Error&) {
    throw;  // an error of ours
  } catch (const std::exception& error) {
    peer.error = error.what();
  }
  return peer;
}

PeerTimings measure_peers(const KernelCeiling& ceiling, BenchDevice& bench, const TransformerEngine& engine,
                          const MeasureOptions& options, Progress& progress) {
  PeerTimings peers;
  int64_t done = 0;
  progress.begin({.title = "measuring Transformer Engine", .total = std::ssize(ceiling.kernels)});
  for (const MeasuredKernel& kernel : ceiling.kernels) {
    progress.update(done++, kernel.kernel.name);
    if (kernel.kernel.peer) peers.emplace(kernel.kernel.name, measure_peer(bench, kernel.kernel, engine, options));
  }
  progress.update(done, "");
  progress.end();
  return peers;
}

}  // namespace megatron
