// Named timers of a training step, and the report of their times over all ranks in Megatron-LM's form.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Stop watches by name, each of which may run many times between two readings. Not thread-safe: one per rank.
/// A timer above `log_level` costs a comparison and records nothing. Levels are those of --timing-log-level: 0 always,
/// 1 the parts of a step, 2 each forward, backward and transfer.
/// The watches read the host's clock: whoever times device work synchronises the device (and ranks) first.
///
///     Timers timers(1);
///     { const auto scope = timers.scope("optimizer", 1);  step(); }
///     double seconds = timers.take_seconds("optimizer");
class Timers {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;

  explicit Timers(int log_level, Now now = Clock::now);

  /// @throw InternalError if the timer runs already.
  void start(std::string_view name, int level);
  /// Whether timers of this level record anything: whether it is worth to wait for the device.
  bool records(int level) const { return level <= log_level_; }

  /// @throw InternalError if the timer is recorded at this level but does not run.
  void stop(std::string_view name, int level);

  /// Stops its timer at the end of a block.
  class Scope {
   public:
    Scope(Timers& timers, std::string_view name, int level);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Timers& timers_;
    std::string name_;
    int level_;
  };
  [[nodiscard]] Scope scope(std::string_view name, int level) { return Scope(*this, name, level); }

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
  std::vector<double> take_seconds(std::span<const std::string> names);

  /// All timers that ran so far, in the order of their first start.
  std::vector<std::string> names() const;

 private:
  struct Timer {
    std::string name;
    double seconds = 0.0;
    std::optional<Clock::time_point> running_since = {};
  };
  Timer* find(std::string_view name);

  int log_level_;
  Now now_;
  std::vector<Timer> timers_;
};

/// --timing-log-option.
enum class TimingOption { kMinMax, kMax, kAll };

/// @param text  "minmax", "max" or "all".
/// @throw ConfigError for any other.
TimingOption parse_timing_option(std::string_view text);

/// @param seconds         [rank][timer], from Timers::take_seconds of every rank; a rank that has not run a timer gives
/// 0
///                        and is left out of that timer's row.
/// @param num_iterations  what the times are divided by.
/// @return the report in ms without a line end, or nothing if no timer ran.
std::optional<std::string> timers_report(TimingOption option, std::span<const std::string> names,
                                         std::span<const std::vector<double>> seconds, double num_iterations);

}  // namespace megatron
