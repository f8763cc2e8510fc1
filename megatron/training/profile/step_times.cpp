#include "megatron/training/profile/step_times.h"

#include <algorithm>

namespace megatron {
namespace {

/// The time of `span` that lies within other spans, which are sorted and disjoint.
int64_t covered_ns(const TimeSpan& span, std::span<const TimeSpan> by) {
  const auto first = std::ranges::lower_bound(by, span.begin_ns, {}, &TimeSpan::end_ns);
  int64_t sum = 0;
  for (auto it = first; it != by.end() && it->begin_ns < span.end_ns; ++it)
    sum += std::max<int64_t>(0, std::min(span.end_ns, it->end_ns) - std::max(span.begin_ns, it->begin_ns));
  return sum;
}

/// The same points of time, in order, apart from each other.
std::vector<TimeSpan> merged(std::vector<TimeSpan> spans) {
  std::ranges::sort(spans, {}, &TimeSpan::begin_ns);
  std::vector<TimeSpan> result;
  for (const TimeSpan& span : spans) {
    if (!result.empty() && span.begin_ns <= result.back().end_ns)
      result.back().end_ns = std::max(result.back().end_ns, span.end_ns);
    else
      result.push_back(span);
  }
  return result;
}

std::vector<TimeSpan> intersection(std::span<const TimeSpan> a, std::span<const TimeSpan> b) {
  std::vector<TimeSpan> result;
  for (const TimeSpan& x : a)
    for (const TimeSpan& y : b) {
      const TimeSpan both{std::max(x.begin_ns, y.begin_ns), std::min(x.end_ns, y.end_ns)};
      if (both.begin_ns < both.end_ns) result.push_back(both);
    }
  return result;
}

}  // namespace

StepTimes step_times(std::span<const TimeSpan> steps, std::span<const OpRecord> ops,
                     std::vector<TimeSpan> communication) {
  StepTimes times;
  for (const TimeSpan& step : steps) times.total_ns += step.duration_ns();
  std::vector<TimeSpan> computing;
  for (const OpRecord& op : ops) {
    times.of(class_of(op.name).value_or(OpClass::kOther)) += covered_ns(op.device, steps);
    computing.push_back(op.device);
  }
  computing = merged(std::move(computing));
  for (const TimeSpan& span : intersection(steps, merged(std::move(communication))))
    times.of(OpClass::kCommunication) += span.duration_ns() - covered_ns(span, computing);
  times.gap_ns = times.total_ns;
  for (int64_t ns : times.class_ns) times.gap_ns -= ns;
  return times;
}

}  // namespace megatron
