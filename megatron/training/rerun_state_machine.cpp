#include "megatron/training/rerun_state_machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "megatron/base/word_list.h"
#include "megatron/training/rejected_result.h"

namespace megatron {
namespace {

using Verdict = RejectedResult::Verdict;

constexpr double kSpike = 10;  // times the largest of the first values, Megatron's
constexpr int kNumFirstValues = 100;
constexpr double kGradTolerance = 1e-3;  // attention's gradients may be summed in any order

/// Relative; 0 for equal values and for NaN twice, infinite for NaN or infinity against anything else.
double difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::abs(2 * (a - b) / (a + b));
}

/// " (not finite on ranks 1, 3)"; empty where that is so on all or none.
std::string not_finite_text(const std::vector<double>& own_losses) {
  std::vector<std::string> ranks;
  for (size_t rank = 0; rank < own_losses.size(); ++rank)
    if (!std::isfinite(own_losses[rank])) ranks.push_back(std::to_string(rank));
  if (ranks.empty() || ranks.size() == own_losses.size()) return {};
  return fmt::format(", not finite on rank{} {}", ranks.size() > 1 ? "s" : "", joined(ranks, ", "));
}

/// " Rank 1 has computed something else."; empty where none has by itself.
std::string different_text(const std::vector<double>& first, const std::vector<double>& again) {
  std::vector<std::string> ranks;
  for (size_t rank = 0; rank < first.size(); ++rank)
    if (difference(first[rank], again[rank]) != 0) ranks.push_back(std::to_string(rank));
  if (ranks.empty()) return {};
  return fmt::format(" The loss differs on rank{} {}.", ranks.size() > 1 ? "s" : "", joined(ranks, ", "));
}

/// The values of a step with an injected error are those of a correct one.
constexpr const char* kInjected =
    " --error-injection-type makes this step count as one whose result has changed, though its values have not.";

/// Without the sign that NaN may have.
std::string value_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{:.9g}", value); }

std::string value_text(const StepValues& values) {
  return fmt::format("loss {}, gradient norm {}", value_text(values.loss), value_text(values.grad_norm));
}

}  // namespace

bool RerunStateMachine::Largest::is_exceeded_by(double other) {
  other = std::abs(other);
  if (num_values >= kNumFirstValues) return other >= kSpike * value;
  ++num_values;
  value = std::max(value, other);
  return false;
}

void RerunStateMachine::begin_step(int64_t iteration) {
  is_first_step_ = iteration_ == 0;
  iteration_ = iteration;
  first_.reset();
  injected_.reset();
}

bool RerunStateMachine::looks_before_update() const {
  const FaultConfig& faults = options_.faults;
  return faults.check_for_spiky_loss || faults.check_for_large_grads || faults.error_injection_rate > 0 ||
         faults.rerun_mode == RerunMode::kReportStats || has_rejected(iteration_);
}

/// Selects one in --error-injection-rate of the steps after the first, the same on all ranks.
bool RerunStateMachine::is_injected() const {
  const int64_t rate = options_.faults.error_injection_rate;
  if (rate == 0 || is_first_step_) return false;
  std::mt19937_64 random(static_cast<uint64_t>(options_.seed) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(iteration_));
  return random() % static_cast<uint64_t>(rate) == 0;
}

std::optional<RerunStateMachine::Rejection> RerunStateMachine::rejection_of(const StepValues& values) {
  const FaultConfig& faults = options_.faults;
  if (is_injected()) {
    injected_ = faults.error_injection_type;
    return Rejection{.reason = "rejected by --error-injection-rate"};
  }
  if (options_.check_for_nan && !std::isfinite(values.loss)) return Rejection{.reason = "the loss is not finite"};
  if (options_.check_for_nan && !std::isfinite(values.grad_norm))
    return Rejection{.reason = "the gradients are not finite", .tolerance = kGradTolerance};
  if (faults.check_for_spiky_loss && losses_.is_exceeded_by(values.loss))
    return Rejection{.reason = "the loss is 10 times the largest of the first 100", .is_fatal = false};
  if (faults.check_for_large_grads && norms_.is_exceeded_by(values.grad_norm))
    return Rejection{.reason = "the gradient norm is 10 times the largest of the first 100",
                     .tolerance = kGradTolerance,
                     .is_fatal = false};
  return std::nullopt;
}

/// @param is_transient_time  whether an injected transient error shows now, or a lasting one
bool RerunStateMachine::is_same(const StepValues& values, double tolerance, bool is_transient_time) {
  const std::optional<InjectedError> injected = is_transient_time ? injected_ : options_.rejected->injected;
  if (injected)
    return *injected != (is_transient_time ? InjectedError::kTransientError : InjectedError::kPersistentError);
  const StepValues first = first_.value();
  return difference(first.loss, values.loss) <= tolerance &&
         difference(first.grad_norm, values.grad_norm) <= kGradTolerance;
}

bool RerunStateMachine::wants_again(const StepValues& values) {
  if (first_) return judge_again(values);
  if (has_rejected(iteration_)) judge_restart(values);
  std::optional<Rejection> rejection = rejection_of(values);
  const bool compares_all = options_.faults.rerun_mode == RerunMode::kReportStats;
  if (!rejection && !compares_all) return false;
  first_ = values;
  first_own_ = options_.gather(values.own_loss);
  rejection_ = rejection.value_or(Rejection{.reason = "", .tolerance = 0, .is_fatal = false});
  if (rejection && options_.on_rejected) options_.on_rejected(iteration_);
  if (options_.faults.rerun_mode == RerunMode::kDisabled && rejection_.is_fatal)
    throw RejectedResult(
        fmt::format("[training] iteration {}: {}: {}{}. No weight has changed. Lower --lr, look at the "
                    "data, or go on with --no-check-for-nan-in-loss-and-grad.",
                    iteration_, rejection_.reason, value_text(values), not_finite_text(first_own_)),
        Verdict::kStop);
  if (options_.faults.rerun_mode == RerunMode::kDisabled) {
    options_.log.warning(fmt::format("iteration {}: {}: {}", iteration_, rejection_.reason, value_text(values)));
    return false;
  }
  if (rejection)
    options_.log.warning(fmt::format("iteration {}: {}: {}{}. The step is computed again.", iteration_,
                                     rejection_.reason, value_text(values), not_finite_text(first_own_)));
  return true;
}

bool RerunStateMachine::judge_again(const StepValues& values) {
  const std::vector<double> own = options_.gather(values.own_loss);
  const bool is_same_result = is_same(values, rejection_.tolerance, true);
  if (rejection_.reason.empty()) {  // report_stats
    const double loss = difference(first_->loss, values.loss), norm = difference(first_->grad_norm, values.grad_norm);
    ++num_compared_;
    if (loss != 0 || norm != 0) ++num_different_;
    largest_difference_ = std::max({largest_difference_, loss, norm});
    return false;
  }
  const std::string compared = fmt::format("iteration {}: {}: {}, and computed again from the same state and batch {}.",
                                           iteration_, rejection_.reason, value_text(*first_), value_text(values));
  if (!is_same_result) {
    const std::string text = fmt::format("{}{}{} That is possibly a transient fault of the hardware", compared,
                                         different_text(first_own_, own), injected_ ? kInjected : "");
    if (rejection_.is_fatal)
      throw RejectedResult(fmt::format("[training] {}. No weight has changed. Start again from the last checkpoint, "
                                       "on other hosts if it comes back.",
                                       text),
                           Verdict::kFailed);
    options_.log.warning(text + ". The step is taken.");
    return false;
  }
  if (!rejection_.is_fatal) {
    options_.log.warning(compared + " It is the same, and the step is taken.");
    return false;
  }
  rejected_ = RejectedStep{.iteration = iteration_,
                           .loss = first_->loss,
                           .grad_norm = first_->grad_norm,
                           .places = options_.places,
                           .injected = injected_};
  throw RejectedResult(
      fmt::format(
          "[training] {} It is the same, so the result is right, or the fault lasts. No weight has changed. {}",
          compared,
          options_.can_restart
              ? "Start again on another host to tell which. If it is right, lower --lr or look at the data."
              : "Give --save, and start again on another host to tell which. If it is right, lower --lr or look "
                "at the data."),
      Verdict::kRestartToTellApart);
}

void RerunStateMachine::judge_restart(const StepValues& values) {
  const RejectedStep& before = *options_.rejected;
  if (before.places == options_.places) {
    rejected_ = before;
    throw RejectedResult(
        fmt::format(
            "[training] iteration {}: the run before has rejected {}, and this one is on the same hosts and "
            "devices ({}), which cannot tell whether these are at fault. Start again on others, or remove {} to "
            "compute the step here as if nothing had been rejected.",
            iteration_, value_text({.loss = before.loss, .grad_norm = before.grad_norm}), before.places,
            options_.rejected_path),
        Verdict::kRestartToTellApart);
  }
  first_ = StepValues{.loss = before.loss, .grad_norm = before.grad_norm};
  const bool is_right = is_same(values, kGradTolerance, false);
  throw RejectedResult(
      fmt::format("[training] iteration {}: the run before has rejected {}, and here it is {}. {}", iteration_,
                  value_text(*first_), value_text(values),
                  is_right ? "The result is right: the cause is the model, the data or the learning rate. Lower --lr, "
                             "look at the data, or skip it with --iterations-to-skip."
                           : fmt::format("That is possibly a lasting fault of the hardware there ({}): leave these "
                                         "hosts out, and start again here.",
                                         before.places)),
      Verdict::kFailed);
}

std::string RerunStateMachine::statistics() const {
  if (num_compared_ == 0) return {};
  return fmt::format(
      "{} of {} steps gave another result when they were computed again; the largest relative "
      "difference of loss and gradient norm is {:.3g}",
      num_different_, num_compared_, largest_difference_);
}

}  // namespace megatron
