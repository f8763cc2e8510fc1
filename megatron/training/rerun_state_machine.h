// Tells faults of the hardware from results that are wrong by themselves, by computing a step again.
// Megatron Core: core/rerun_state_machine.py.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/message_log.h"
#include "megatron/training/config/fault_config.h"

namespace megatron {

/// The results of a step before the optimizer steps.
struct StepValues {
  double loss = 0, grad_norm = 0;  // of all ranks together
  double own_loss = 0;             // sum over this rank's tokens
};

/// A rejected result that was the same when it was computed again, for the restart that finds out why.
struct RejectedStep {
  int64_t iteration = 0;
  double loss = 0, grad_norm = 0;
  std::string places;  // hosts and devices of all ranks
  std::optional<InjectedError> injected;
};

/// Looks at the values of each step. All ranks have one, see the same values of all ranks, and so decide alike.
///
///     RerunStateMachine reruns(...);
///     reruns.begin_step(iteration);
///     while (reruns.wants_again(values)) values = compute again from the same state and batch;
class RerunStateMachine {
 public:
  struct Options {
    FaultConfig faults;
    bool check_for_nan = true;
    int64_t seed = 0;                      // of injected errors
    std::string places;                    // of this run: see RejectedStep
    std::optional<RejectedStep> rejected;  // by the run before
    std::string rejected_path;             // the file that holds it
    bool can_restart = false;              // there is a checkpoint to restart from
    MessageLog log;
    std::function<std::vector<double>(double)> gather;  // a number of every rank, on every rank
    std::function<void(int64_t)> on_rejected;           // told of each rejected iteration
  };
  explicit RerunStateMachine(Options options) : options_(std::move(options)) {}

  /// @param iteration  counted from 1
  void begin_step(int64_t iteration);
  /// Says whether wants_again() has to see the values before the optimizer steps; if not, only where these are not
  /// finite.
  bool looks_before_update() const;
  /// @return whether to compute the step again. @throw RejectedResult where the run has to end
  bool wants_again(const StepValues& values);

  /// A rejected step, once wants_again() has thrown kRestartToTellApart.
  const std::optional<RejectedStep>& rejected() const { return rejected_; }
  /// Says whether the run before has rejected this iteration.
  bool has_rejected(int64_t iteration) const { return options_.rejected && options_.rejected->iteration == iteration; }
  /// The report of --rerun-mode report_stats: how far repeated steps differed; empty before the first.
  std::string statistics() const;

 private:
  struct Rejection {
    std::string reason;
    double tolerance = 0;  // relative, of what counts as the same
    bool is_fatal = true;
  };
  std::optional<Rejection> rejection_of(const StepValues& values);
  bool judge_again(const StepValues& values);
  [[noreturn]] void judge_restart(const StepValues& values);
  bool is_same(const StepValues& values, double tolerance, bool is_transient_time);
  bool is_injected() const;

  Options options_;
  int64_t iteration_ = 0;
  bool is_first_step_ = true;
  std::optional<StepValues> first_;  // of the step that is computed again
  std::vector<double> first_own_;    // losses of all ranks
  Rejection rejection_;
  std::optional<InjectedError> injected_;
  std::optional<RejectedStep> rejected_;
  struct Largest {
    double value = 0;
    int num_values = 0;
    bool is_exceeded_by(double other);
  };
  Largest losses_, norms_;
  int64_t num_compared_ = 0, num_different_ = 0;
  double largest_difference_ = 0;
};

}  // namespace megatron
