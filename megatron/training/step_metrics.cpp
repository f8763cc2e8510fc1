#include "megatron/training/step_metrics.h"

#include <algorithm>

#include "megatron/core/copy.h"

namespace megatron {
namespace {

bool are_reduced_alike(const MetricSpec& a, const MetricSpec& b) {
  const auto same_group = [](const ProcessGroup& x, const ProcessGroup& y) {
    return x.name() == y.name() && x.size() == y.size();
  };
  return a.dtype == b.dtype && a.reduction == b.reduction && std::ranges::equal(a.groups, b.groups, same_group);
}

}  // namespace

double value_of(const std::vector<StepMetric>& metrics, std::string_view name) {
  const auto found = std::ranges::find(metrics, name, &StepMetric::name);
  require(found != metrics.end() && found->values.size() == 1, "[metrics] there is no single value '{}'.", name);
  return found->values[0];
}

StepMetrics::StepMetrics(const Context& ctx, const std::vector<MetricSpec>& specs) {
  for (const MetricSpec& spec : specs) {
    require(spec.dtype == DType::kFloat64 || spec.dtype == DType::kInt64, "[metrics] '{}' is of {}; use fp64 or int64.",
            spec.name, name_of(spec.dtype));
    require(std::ranges::find(entries_, spec.name, &Entry::name) == entries_.end(),
            "[metrics] two metrics of a step are named '{}'.", spec.name);
    auto block = std::ranges::find_if(blocks_, [&](const Block& b) { return are_reduced_alike(b.spec, spec); });
    if (block == blocks_.end()) {
      block = blocks_.insert(block, {.spec = spec});
      block->spec.size = 0;
    }
    block->site += (block->site.empty() ? "" : ", ") + spec.name;
    entries_.push_back({.name = spec.name,
                        .block = static_cast<size_t>(block - blocks_.begin()),
                        .first = block->spec.size,
                        .size = spec.size});
    block->spec.size += spec.size;
  }
  for (Block& block : blocks_) {
    block.tensor = ctx.empty(block.site, {block.spec.size}, block.spec.dtype, MemoryUse::kData);
    fill_zero(ctx.device, block.tensor.view().data, block.tensor.bytes());
  }
}

const StepMetrics::Entry& StepMetrics::entry(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  require(found != entries_.end(), "[metrics] this step has no metric '{}'.", name);
  return *found;
}

Tensor StepMetrics::accumulator(std::string_view name) const {
  const Entry& found = entry(name);
  return blocks_[found.block].tensor.slice(0, found.first, found.size);
}

void StepMetrics::reduce() {
  for (Block& block : blocks_) reduce(block);
}

void StepMetrics::reduce_block_of(std::string_view name) { reduce(blocks_[entry(name).block]); }

void StepMetrics::reduce(Block& block) {
  if (std::exchange(block.is_reduced, true)) return;
  const ReduceOp op = block.spec.reduction == MetricReduction::kMax ? ReduceOp::kMax : ReduceOp::kSum;
  for (const ProcessGroup& group : block.spec.groups)
    group.all_reduce(block.tensor.view(), op, {.site = block.site}).wait();
}

void StepMetrics::add_to(Readback& readback) {
  for (Block& block : blocks_) {
    const auto size = static_cast<size_t>(block.spec.size);
    if (block.spec.dtype == DType::kInt64) {
      block.integers.resize(size);
      readback.add(block.tensor, std::span(block.integers));
    } else {
      block.reals.resize(size);
      readback.add(block.tensor, std::span(block.reals));
    }
  }
}

std::vector<StepMetric> StepMetrics::values() const {
  std::vector<StepMetric> metrics;
  for (const Entry& item : entries_) {
    const Block& block = blocks_[item.block];
    double num_summands = 1;
    if (block.spec.reduction == MetricReduction::kMean)
      for (const ProcessGroup& group : block.spec.groups) num_summands *= group.size();
    StepMetric& metric = metrics.emplace_back(StepMetric{.name = item.name, .values = {}});
    for (auto i = static_cast<size_t>(item.first); i < static_cast<size_t>(item.first + item.size); ++i) {
      const bool is_integer = block.spec.dtype == DType::kInt64;
      metric.values.push_back((is_integer ? static_cast<double>(block.integers[i]) : block.reals[i]) / num_summands);
    }
  }
  return metrics;
}

}  // namespace megatron
