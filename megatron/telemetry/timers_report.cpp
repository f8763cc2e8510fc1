#include "megatron/telemetry/timers_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

TimingOption parse_timing_option(std::string_view text) {
  if (text == "minmax") return TimingOption::kMinMax;
  if (text == "max") return TimingOption::kMax;
  if (text == "all") return TimingOption::kAll;
  throw ConfigError(fmt::format("--timing-log-option '{}' is not known. Choose minmax, max or all.", text));
}

namespace {

struct RankTime {
  std::size_t rank;
  double ms;
};

std::vector<RankTime> times_of(std::size_t timer, std::span<const std::vector<double>> seconds, double num_iterations) {
  std::vector<RankTime> times;
  for (std::size_t rank = 0; rank < seconds.size(); ++rank) {
    const double value = seconds[rank].at(timer);
    if (value > 0.0) times.push_back({rank, value * 1000.0 / num_iterations});
  }
  return times;
}

std::string row(TimingOption option, std::string_view name, const std::vector<RankTime>& times) {
  if (option == TimingOption::kAll) {
    std::string text = fmt::format("\n  {}:", name);
    for (const RankTime& time : times) text += fmt::format("\n     rank {:2d}: {:.2f}", time.rank, time.ms);
    return text;
  }
  const auto [low, high] = std::ranges::minmax_element(times, {}, &RankTime::ms);
  if (option == TimingOption::kMax) return fmt::format("\n    {:.<48}: {:.2f}", fmt::format("{} ", name), high->ms);
  return fmt::format("\n    {:.<48}: ({:.2f}, {:.2f})", fmt::format("{} ", name), low->ms, high->ms);
}

std::string_view heading(TimingOption option) {
  switch (option) {
    case TimingOption::kMinMax:
      return "(min, max) time across ranks (ms):";
    case TimingOption::kMax:
      return "max time across ranks (ms):";
    case TimingOption::kAll:
      return "times across ranks (ms):";
  }
  throw InternalError("unknown timing option");
}

}  // namespace

std::optional<std::string> timers_report(TimingOption option, std::span<const std::string_view> names,
                                         std::span<const std::vector<double>> seconds, double num_iterations) {
  require(num_iterations > 0, "timers_report: num_iterations is {}, must be above 0", num_iterations);
  std::string rows;
  for (std::size_t timer = 0; timer < names.size(); ++timer) {
    const std::vector<RankTime> times = times_of(timer, seconds, num_iterations);
    if (!times.empty()) rows += row(option, names[timer], times);
  }
  if (rows.empty()) return std::nullopt;
  return std::string(heading(option)) + rows;
}

}  // namespace megatron
