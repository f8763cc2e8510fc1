#include "megatron/core/timers.h"

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
  if (wait_) wait_();
  timer->running_since = now_();
}

void Timers::stop(std::string_view name, int level) {
  if (level > log_level_) return;
  Timer* timer = find(name);
  require(timer && timer->running_since, "Timer '{}' was stopped but does not run. Start it first.", name);
  if (wait_) wait_();
  timer->seconds += std::chrono::duration<double>(now_() - *timer->running_since).count();
  timer->running_since.reset();
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

std::vector<double> Timers::take_seconds(std::span<const std::string_view> names) {
  std::vector<double> seconds;
  seconds.reserve(names.size());
  for (const std::string_view name : names) seconds.push_back(take_seconds(name));
  return seconds;
}

Timers::Timer* Timers::find(std::string_view name) {
  const auto found = std::ranges::find(timers_, name, &Timer::name);
  return found == timers_.end() ? nullptr : &*found;
}

}  // namespace megatron
