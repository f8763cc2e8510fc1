// Named timers of a training step. Megatron Core: core/timers.py.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace megatron {

/// Stop watches by name, each of which may run many times between two readings. Not thread-safe: one per rank.
/// A timer above `log_level` costs a comparison and records nothing. Levels are those of --timing-log-level: 0 always,
/// 1 the parts of a step, 2 each forward, backward and transfer.
///
///     Timers timers(1);
///     const StepResult result = timed(&timers, "optimizer", 1, [&] { return optimizer.step(); });
///     double seconds = timers.take_seconds("optimizer");
class Timers {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;

  explicit Timers(int log_level, Now now = Clock::now);

  /// The watches read the host's clock. `wait` is called before each start and stop that is recorded, and waits for
  /// what the host gave the device to do, so that its time falls to the timer that it belongs to.
  void wait_before_reading(std::function<void()> wait) { wait_ = std::move(wait); }

  /// @throw InternalError if the timer runs already.
  void start(std::string_view name, int level);
  /// @throw InternalError if the timer is recorded at this level but does not run.
  void stop(std::string_view name, int level);
  /// From the next start on; no timer of the levels between may run.
  void set_log_level(int log_level) { log_level_ = log_level; }
  /// Says whether timers of this level record anything.
  bool records(int level) const { return level <= log_level_; }

  /// Stands still from here to the end of a block, and then goes on; nothing for a timer that does not run.
  class Pause {
   public:
    Pause(Timers& timers, std::string_view name);
    ~Pause();
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Timers& timers_;
    std::string name_;
    bool was_running_;
  };
  [[nodiscard]] Pause pause(std::string_view name) { return Pause(*this, name); }

  /// Seconds that the timer ran since it was last taken, 0 if never; a running timer goes on from now.
  double take_seconds(std::string_view name);

  /// The same for several timers.
  std::vector<double> take_seconds(std::span<const std::string_view> names);

 private:
  struct Timer {
    std::string name;
    double seconds = 0.0;
    std::optional<Clock::time_point> running_since = {};
  };
  Timer* find(std::string_view name);

  int log_level_;
  Now now_;
  std::function<void()> wait_;
  std::vector<Timer> timers_;
};

/// Returns the result of work(), and adds the time that it took to a timer, if there are timers. A timer whose work
/// throws runs on: a device that failed is not waited for.
template <class Work>
std::invoke_result_t<Work> timed(Timers* timers, std::string_view name, int level, Work&& work) {
  if (!timers || !timers->records(level)) return work();
  timers->start(name, level);
  if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
    work();
    timers->stop(name, level);
  } else {
    auto result = work();
    timers->stop(name, level);
    return result;
  }
}

}  // namespace megatron
