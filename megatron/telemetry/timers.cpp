#include "megatron/telemetry/timers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

Timers::Timers(int log_level, Now now) : log_level_(log_level), now_(std::move(now)) {}

void Timers::start(std::string_view name, int level) {
  if (level > log_level_) return;
  Timer* timer = find(name);
  if (!timer) timer = &timers_.emplace_back(Timer{.name = std::string(name)});
  require(!timer->running_since, "Timer '{}' was started while it runs. Stop it first.", name);
  timer->running_since = now_();
}

void Timers::stop(std::string_view name, int level) {
  if (level > log_level_) return;
  Timer* timer = find(name);
  require(timer && timer->running_since, "Timer '{}' was stopped but does not run. Start it first.", name);
  timer->seconds += std::chrono::duration<double>(now_() - *timer->running_since).count();
  timer->running_since.reset();
}

Timers::Scope::Scope(Timers& timers, std::string_view name, int level) : timers_(timers), name_(name), level_(level) {
  timers_.start(name_, level_);
}

Timers::Scope::~Scope() {
  // The timer may have been stopped by hand; a destructor must not throw over it.
  const Timer* timer = timers_.find(name_);
  if (timer && timer->running_since) timers_.stop(name_, level_);
}

Timers::Pause::Pause(Timers& timers, std::string_view name) : timers_(timers), name_(name) {
  Timer* timer = timers_.find(name_);
  was_running_ = timer && timer->running_since;
  if (!was_running_) return;
  timer->seconds += std::chrono::duration<double>(timers_.now_() - *timer->running_since).count();
  timer->running_since.reset();
}

Timers::Pause::~Pause() {
  // Looked up again: timers that started meanwhile may have moved it.
  Timer* timer = timers_.find(name_);
  if (was_running_ && !timer->running_since) timer->running_since = timers_.now_();
}

double Timers::take_seconds(std::string_view name) {
  Timer* timer = find(name);
  if (!timer) return 0.0;
  if (timer->running_since) {
    const Clock::time_point now = now_();
    timer->seconds += std::chrono::duration<double>(now - *timer->running_since).count();
    timer->running_since = now;
  }
  return std::exchange(timer->seconds, 0.0);
}

std::vector<double> Timers::take_seconds(std::span<const std::string> names) {
  std::vector<double> seconds;
  seconds.reserve(names.size());
  for (const std::string& name : names) seconds.push_back(take_seconds(name));
  return seconds;
}

std::vector<std::string> Timers::names() const {
  std::vector<std::string> result;
  result.reserve(timers_.size());
  for (const Timer& timer : timers_) result.push_back(timer.name);
  return result;
}

Timers::Timer* Timers::find(std::string_view name) {
  const auto found = std::ranges::find(timers_, name, &Timer::name);
  return found == timers_.end() ? nullptr : &*found;
}

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

std::string row(TimingOption option, const std::string& name, const std::vector<RankTime>& times) {
  if (option == TimingOption::kAll) {
    std::string text = fmt::format("\n  {}:", name);
    for (const RankTime& time : times) text += fmt::format("\n     rank {:2d}: {:.2f}", time.rank, time.ms);
    return text;
  }
  const auto [low, high] = std::ranges::minmax_element(times, {}, &RankTime::ms);
  if (option == TimingOption::kMax) return fmt::format("\n    {:.<48}: {:.2f}", name + ' ', high->ms);
  return fmt::format("\n    {:.<48}: ({:.2f}, {:.2f})", name + ' ', low->ms, high->ms);
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

std::optional<std::string> timers_report(TimingOption option, std::span<const std::string> names,
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
