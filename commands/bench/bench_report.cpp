#include "commands/bench/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "megatron/base/file_system.h"
#include "megatron/bench/state_bytes.h"

namespace megatron {
namespace {

std::string today() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::now())); }

/// NaN, which JSON writes as null, if there is no value.
double or_null(const std::optional<double>& value) { return value.value_or(std::numeric_limits<double>::quiet_NaN()); }

std::string_view kind_name(KernelKind kind) {
  switch (kind) {
    case KernelKind::kProduct:
      return "product";
    case KernelKind::kAttention:
      return "attention";
    case KernelKind::kMemory:
      return "memory";
  }
  return "";
}

std::string scaled(double value, std::span<const std::string_view> prefixes, std::string_view unit) {
  size_t i = 0;
  while (std::abs(value) >= 999.5 && i + 1 < prefixes.size()) value /= 1000, ++i;
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}{}", value, decimals, prefixes[i], unit);
}

/// The cell for a share of the copy's bandwidth, or of the fastest matmul; empty if it is unknown.
std::string share_text(double share) { return std::isnan(share) ? "" : fmt::format("{:.1f} %", 100 * share); }

/// The cell for Transformer Engine's call in a row of the table.
std::string peer_columns(const MeasuredKernel& ours, const PeerTiming& peer) {
  if (!peer.is_right()) return fmt::format("{:>11}", peer.error.empty() ? "differs" : "fails");
  return fmt::format("{:>11}{:>9.2f}", time_text(peer.timing.best), peer.timing.best / ours.timing.best);
}

/// The note on a row, printed below the table.
std::string peer_note(const KernelCase& kernel, const PeerTiming& peer) {
  if (!peer.error.empty()) return peer.error;
  if (!peer.is_right())
    return fmt::format("its {} differs from ours by {:.3g} times the rounding bound, after {}", peer.result,
                       peer.difference, time_text(peer.timing.best));
  return kernel.peer_note;
}

void add_peer(const MeasuredKernel& ours, const PeerTiming& peer, std::vector<JsonField>& fields) {
  const auto known = [&](double value) { return peer.is_right() ? value : std::numeric_limits<double>::quiet_NaN(); };
  fields.push_back({"te_seconds", known(peer.timing.best)});
  fields.push_back({"te_median_seconds", known(peer.timing.median)});
  fields.push_back({"te_spread", known(peer.timing.spread)});
  fields.push_back({"te_seconds_over_ours", known(peer.timing.best / ours.timing.best)});
  fields.push_back({"te_difference_over_rounding", peer.difference});
  fields.push_back({"te_note", peer_note(ours.kernel, peer)});
}

std::string name_of_case(const BenchConfig& config, const PretrainConfig& model) {
  if (!config.name.empty()) return config.name;
  if (config.kind == BenchKind::kComm) return "exchanges";
  return config.shapes.empty() ? description_of(model) : "shapes";
}

/// GPUs that are measured: kernels run on one, whatever the layout.
int64_t num_gpus(const BenchConfig& config, const PretrainConfig& model, const DeviceFacts& facts) {
  if (facts.kind != DeviceKind::kCuda) return 0;
  return config.kind == BenchKind::kStep || config.kind == BenchKind::kComm ? model.parallel.world_size : 1;
}

/// "none", "full", "selective: core_attn".
std::string recompute_text(const TransformerConfig& model) {
  if (model.recompute_granularity == RecomputeGranularity::kNone) return "none";
  if (model.recompute_granularity == RecomputeGranularity::kFull) return "full";
  std::string text = "selective";
  std::string_view separator = ": ";
  for (const auto& [module, name] : names_of_enum(RecomputeModule{}))
    if (model.recomputes(module)) text += fmt::format("{}{}", std::exchange(separator, ", "), name);
  return text;
}

void add_precision(const PretrainConfig& model, std::vector<JsonField>& fields) {
  const StateBytes bytes = state_bytes_of(step_shapes_of(model));
  fields.insert(fields.end(), {{"bytes_per_parameter", bytes.sum()},
                               {"weight_bytes", bytes.weight},
                               {"gradient_bytes", bytes.gradient},
                               {"main_param_bytes", bytes.main_param},
                               {"moment_bytes", bytes.moments},
                               {"tf32", model.precision.takes_tf32()},
                               {"deterministic", model.transformer.deterministic_mode}});
}

void add_layout(const PretrainConfig& model, std::vector<JsonField>& fields) {
  const ParallelConfig& parallel = model.parallel;
  fields.insert(fields.end(), {{"recompute", recompute_text(model.transformer)},
                               {"seq_length", model.model.seq_length.value()},
                               {"micro_batch_size", model.training.micro_batch_size.value()},
                               {"global_batch_size", model.training.global_batch_size.value()},
                               {"tp", parallel.tensor_model_parallel_size},
                               {"pp", parallel.pipeline_model_parallel_size},
                               {"dp", parallel.data_parallel_size},
                               {"cp", parallel.context_parallel_size},
                               {"sequence_parallel", parallel.sequence_parallel},
                               {"distributed_optimizer", model.optimizer.use_distributed_optimizer}});
}

}  // namespace

std::string time_text(double seconds) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"n", "u", "m", ""};
  return scaled(seconds * 1e9, kPrefixes, "s");
}

std::string rate_text(double per_second, std::string_view unit) {
  constexpr std::array<std::string_view, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  return scaled(per_second, kPrefixes, unit);
}

std::string description_of(const PretrainConfig& config) {
  const TransformerConfig& model = config.transformer;
  const ParallelConfig& parallel = config.parallel;
  std::string text = fmt::format(
      "{} layers, hidden {}, ffn {}, {} heads in {} groups of {}, vocabulary {}; {} x {} tokens a micro-batch, {}",
      model.num_layers, model.hidden_size, model.ffn_hidden_size, model.num_attention_heads, model.num_query_groups,
      model.kv_channels, model.padded_vocab_size, config.training.micro_batch_size.value(),
      config.model.seq_length.value(), name_of(model.params_dtype));
  if (parallel.world_size > 1)
    text += fmt::format("; {} ranks: TP {}{}, PP {}, DP {}", parallel.world_size, parallel.tensor_model_parallel_size,
                        parallel.sequence_parallel ? " with sequence parallelism" : "",
                        parallel.pipeline_model_parallel_size, parallel.data_parallel_size);
  return text;
}

BenchReport::BenchReport(const BenchConfig& config, const PretrainConfig& model, const DeviceFacts& facts,
                         int num_threads, FileSystem& files, Progress& progress)
    : progress_(progress) {
  if (config.json) json_.emplace(files, *config.json);
  common_ = {{"bench", std::string(name_of(config.kind))},
             {"name", name_of_case(config, model)},
             {"device", facts.name},
             {"threads", int64_t{num_threads}},
             {"ranks", model.parallel.world_size},
             {"gpus", num_gpus(config, model, facts)},
             {"dtype", std::string(name_of(model.transformer.params_dtype))},
             {"commit", config.commit},
             {"date", today()}};
  if (config.kind == BenchKind::kComm || !config.shapes.empty()) return;  // no model is measured
  add_precision(model, common_);
  add_layout(model, common_);
}

void BenchReport::row(std::string_view what, std::vector<JsonField> fields) {
  if (!json_) return;
  std::vector<JsonField> all = common_;
  all.push_back({"case", std::string(what)});
  std::ranges::move(fields, std::back_inserter(all));
  json_->write(all);
}

void add_power(const PowerUse& use, std::vector<JsonField>& fields) {
  fields.push_back({"watts", or_null(use.watts)});
  fields.push_back({"clock_mhz", or_null(use.mhz)});
  fields.push_back({"joules", or_null(use.joules)});
}

std::string power_text(const PowerUse& use, const PowerMeter* meter) {
  const std::string source = meter ? meter->source() : "";
  std::string text = use.watts ? fmt::format("{:.0f} W ({})", *use.watts, source) : "not available";
  if (use.mhz) text += fmt::format(", clock {:.0f} MHz", *use.mhz);
  return text;
}

void report_kernels(const KernelCeiling& ceiling, const PeerTimings& peers, const PowerUse& use, BenchReport& report) {
  if (ceiling.copy_bandwidth > 0)
    report.line(fmt::format("a copy moves {}, read and written", rate_text(ceiling.copy_bandwidth, "B/s")));
  report.line(fmt::format("{:<30}{:>11}{:>11}{:>8}{:>15}{:>9}{:>10}{:>12}{}", "kernel", "best", "median", "spread",
                          "rate", "of best", "calls", "in a step",
                          peers.empty() ? "" : fmt::format("{:>11}{:>9}", "TE", "TE/ours")));
  for (const MeasuredKernel& kernel : ceiling.kernels) {
    const bool is_memory = kernel.kernel.kind == KernelKind::kMemory;
    const double rate = (is_memory ? kernel.kernel.bytes : kernel.kernel.operations) / kernel.timing.best;
    const double unknown = std::numeric_limits<double>::quiet_NaN();
    const double of_copy = is_memory ? share_of_bandwidth(kernel, ceiling.copy_bandwidth) : unknown;
    const bool is_product = kernel.kernel.kind == KernelKind::kProduct && ceiling.best_product_rate > 0;
    const double of_product = is_product ? rate / ceiling.best_product_rate : unknown;
    const auto peer = peers.find(kernel.kernel.name);
    report.line(fmt::format("{:<30}{:>11}{:>11}{:>6.1f} %{:>15}{:>9}{:>10.6g}{:>12}{}", kernel.kernel.name,
                            time_text(kernel.timing.best), time_text(kernel.timing.median), 100 * kernel.timing.spread,
                            rate_text(rate, is_memory ? "B/s" : "FLOP/s"), share_text(is_memory ? of_copy : of_product),
                            kernel.kernel.calls, time_text(kernel.seconds()),
                            peer == peers.end() ? "" : peer_columns(kernel, peer->second)));
    std::vector<JsonField> fields = {{"kind", std::string(kind_name(kernel.kernel.kind))},
                                     {"seconds", kernel.timing.best},
                                     {"median_seconds", kernel.timing.median},
                                     {"spread", kernel.timing.spread},
                                     {"timed_calls", kernel.timing.num_calls},
                                     {"calls", kernel.kernel.calls},
                                     {"operations", kernel.kernel.operations},
                                     {"bytes", kernel.kernel.bytes},
                                     {"share_of_copy_bandwidth", of_copy},
                                     {"share_of_best_product", of_product}};
    if (peer != peers.end()) add_peer(kernel, peer->second, fields);
    add_power(use, fields);
    report.row(kernel.kernel.name, std::move(fields));
  }
  for (const MeasuredKernel& kernel : ceiling.kernels)
    if (const auto peer = peers.find(kernel.kernel.name); peer != peers.end())
      if (const std::string note = peer_note(kernel.kernel, peer->second); !note.empty())
        report.line(fmt::format("TE, {}: {}", kernel.kernel.name, note));
}

}  // namespace megatron
