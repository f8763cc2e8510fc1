#include "megatron/training/profile/host_op_times.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "megatron/training/profile/op_class.h"

namespace megatron {
namespace {

constexpr size_t kMostKindsToTell = 6;

double us(int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

std::string HostOpCosts::text() const {
  std::string text = fmt::format("{:.2f} us an op with its launch, of the first {} of a step", us_per_op(), num_ops);
  for (size_t i = 0; i < std::min(kinds.size(), kMostKindsToTell); ++i)
    text += fmt::format("{} {} x {:.2f} us {}", i == 0 ? ":" : ",", kinds[i].num_ops,
                        us(kinds[i].ns) / static_cast<double>(kinds[i].num_ops), kinds[i].name);
  return text;
}

void HostOpTimes::begin_step() {
  if (steps_.empty() || !steps_.back().ops.empty()) steps_.emplace_back().ops.reserve(kMostOps);
}

void HostOpTimes::add(std::string_view name, Pass pass, const TimeSpan& host) {
  Step& step = steps_.back();
  if (step.ops.size() == kMostOps) return;
  const int64_t begin = step.last_end_ns == 0 ? host.begin_ns : step.last_end_ns;
  step.last_end_ns = host.end_ns;
  if (name == "copy_to_host") return;
  step.ops.push_back({name, pass, host.end_ns - begin});
  step.ns += host.end_ns - begin;
}

HostOpCosts HostOpTimes::median_step() const {
  std::vector<const Step*> sorted;
  for (const Step& step : steps_)
    if (!step.ops.empty()) sorted.push_back(&step);
  HostOpCosts costs;
  if (sorted.empty()) return costs;
  const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
  std::ranges::nth_element(sorted, middle, {}, &Step::ns);
  std::map<std::string, HostOpCosts::Kind> kinds;
  for (const Op& op : (*middle)->ops) {
    HostOpCosts::Kind& kind = kinds[std::string(op.name) + std::string(suffix_of(op.pass))];
    ++kind.num_ops;
    kind.ns += op.ns;
  }
  for (auto& [name, kind] : kinds) {
    kind.name = name;
    costs.num_ops += kind.num_ops;
    costs.ns += kind.ns;
    costs.kinds.push_back(std::move(kind));
  }
  std::ranges::stable_sort(costs.kinds, std::greater(), &HostOpCosts::Kind::ns);
  return costs;
}

void HostOpClock::stop() {
  if (device_.profiler == this) device_.profiler = nullptr;
}

void HostOpClock::begin_op(const OpPlace& place, const OpNote& note, const std::source_location& where) {
  name_ = name_of_op(note, where);
  pass_ = place.pass;
  host_.begin_ns = steady_clock_ns();
}

void HostOpClock::end_op() noexcept {
  host_.end_ns = steady_clock_ns();
  if (is_in_step_) times_.add(name_, pass_, host_);
}

void HostOpClock::begin_range(const RangeNote& note) {
  if (note.name != "step") return;
  is_in_step_ = true;
  times_.begin_step();
}

}  // namespace megatron
