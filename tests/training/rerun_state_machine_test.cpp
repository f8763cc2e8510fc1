#include "megatron/training/rerun_state_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "megatron/training/rejected_result.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Verdict = RejectedResult::Verdict;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr StepValues kGood{.loss = 2, .grad_norm = 1, .own_loss = 8};
constexpr StepValues kBad{.loss = kNan, .grad_norm = kNan, .own_loss = kNan};

/// A machine with what it says; ranks 0 and 2 have a loss of 8, rank 1 its own.
struct Case {
  explicit Case(const FaultConfig& faults = {}, std::optional<RejectedStep> rejected = {})
      : machine({.faults = faults,
                 .seed = 7,
                 .places = "here",
                 .rejected = std::move(rejected),
                 .can_restart = true,
                 .log = {.on_info = {}, .on_warning = [this](const std::string& text) { warnings.push_back(text); }},
                 .gather =
                     [](double own) {
                       return std::vector<double>{8, own, 8};
                     },
                 .on_rejected = [this](int64_t iteration) { tracked.push_back(iteration); }}) {}
  std::vector<std::string> warnings;
  std::vector<int64_t> tracked;
  RerunStateMachine machine;

  /// The verdict on a step that has these values one after the other.
  std::optional<Verdict> verdict_on(int64_t iteration, const std::vector<StepValues>& values) {
    machine.begin_step(iteration);
    try {
      for (const StepValues& value : values)
        if (!machine.wants_again(value)) return std::nullopt;
    } catch (const RejectedResult& rejected) {
      text = rejected.what();
      return rejected.verdict;
    }
    ADD_FAILURE() << "the step is to be computed again";
    return std::nullopt;
  }
  std::string text;
};

TEST(RerunStateMachine, TakesFiniteStepsWithoutComputingThemAgain) {
  Case run;
  EXPECT_EQ(run.verdict_on(1, {kGood}), std::nullopt);
  EXPECT_FALSE(run.machine.looks_before_update());
  EXPECT_THAT(run.warnings, IsEmpty());
}

TEST(RerunStateMachine, DistinguishesTransientFaultsFromRepeatedResults) {
  Case transient;
  EXPECT_EQ(transient.verdict_on(5, {kBad, kGood}), Verdict::kFailed);
  EXPECT_THAT(transient.text, HasSubstr("possibly a transient fault"));
  EXPECT_THAT(transient.text, HasSubstr("The loss differs on rank 1."));
  EXPECT_THAT(transient.warnings.at(0), HasSubstr("iteration 5: the loss is not finite"));
  EXPECT_THAT(transient.warnings.at(0), HasSubstr("not finite on rank 1"));
  EXPECT_EQ(transient.tracked, std::vector<int64_t>{5});
  EXPECT_FALSE(transient.machine.rejected());

  Case same;
  EXPECT_EQ(same.verdict_on(5, {kBad, kBad}), Verdict::kRestartToTellApart);
  EXPECT_EQ(same.machine.rejected()->iteration, 5);
  EXPECT_EQ(same.machine.rejected()->places, "here");
}

TEST(RerunStateMachine, StopsAtOnceWhereItIsDisabled) {
  Case run({.rerun_mode = RerunMode::kDisabled});
  EXPECT_EQ(run.verdict_on(5, {kBad}), Verdict::kStop);
  EXPECT_THAT(run.text, HasSubstr("--no-check-for-nan-in-loss-and-grad"));
}

TEST(RerunStateMachine, DistinguishesLastingFaultsFromRightResultsOnOtherHosts) {
  const RejectedStep before{.iteration = 5, .loss = kNan, .grad_norm = kNan, .places = "there", .injected = {}};
  Case right({}, before);
  right.machine.begin_step(5);
  EXPECT_TRUE(right.machine.looks_before_update());
  EXPECT_EQ(right.verdict_on(5, {kBad}), Verdict::kFailed);
  EXPECT_THAT(right.text, HasSubstr("The result is right"));
  Case lasting({}, before);
  EXPECT_EQ(lasting.verdict_on(4, {kGood}), std::nullopt);
  EXPECT_EQ(lasting.verdict_on(5, {kGood}), Verdict::kFailed);
  EXPECT_THAT(lasting.text, HasSubstr("lasting fault of the hardware there (there)"));
  Case same_host({}, RejectedStep{.iteration = 5, .loss = 1, .grad_norm = 1, .places = "here", .injected = {}});
  EXPECT_EQ(same_host.verdict_on(5, {kGood}), Verdict::kRestartToTellApart);
}

TEST(RerunStateMachine, GoesOnAfterASpikeThatIsTheSameAgain) {
  Case run({.check_for_spiky_loss = true, .check_for_large_grads = true});
  EXPECT_TRUE(run.machine.looks_before_update());
  constexpr StepValues kSpike{.loss = 20, .grad_norm = 1, .own_loss = 80}, kLarge{.loss = 2, .grad_norm = 10};
  for (int64_t i = 1; i <= 100; ++i)
    EXPECT_EQ(run.verdict_on(i, {i == 3 ? kGood : StepValues{1, 0.5, 1}}), std::nullopt);
  EXPECT_EQ(run.verdict_on(101, {kGood}), std::nullopt);
  EXPECT_THAT(run.warnings, IsEmpty());
  EXPECT_EQ(run.verdict_on(102, {kSpike, kSpike}), std::nullopt);
  EXPECT_THAT(run.warnings.back(), HasSubstr("It is the same, and the step is taken"));
  EXPECT_EQ(run.verdict_on(103, {kSpike, kGood}), std::nullopt);
  EXPECT_THAT(run.warnings.back(), HasSubstr("possibly a transient fault"));
  EXPECT_EQ(run.verdict_on(104, {kLarge, kLarge}), std::nullopt);
  EXPECT_THAT(run.warnings.back(), HasSubstr("the gradient norm is 10 times"));
}

TEST(RerunStateMachine, InjectsEachKindOfError) {
  const auto faults = [](InjectedError type) {
    return FaultConfig{.error_injection_rate = 1, .error_injection_type = type};
  };
  Case transient(faults(InjectedError::kTransientError));
  EXPECT_EQ(transient.verdict_on(1, {kGood}), std::nullopt) << "never in the first step";
  EXPECT_EQ(transient.verdict_on(2, {kGood, kGood}), Verdict::kFailed);
  EXPECT_THAT(transient.text,
              HasSubstr("--error-injection-type makes this step count as one whose result has changed"));
  for (const InjectedError type : {InjectedError::kPersistentError, InjectedError::kCorrectResult}) {
    Case first(faults(type));
    EXPECT_EQ(first.verdict_on(1, {kGood}), std::nullopt);
    EXPECT_EQ(first.verdict_on(2, {kGood, kGood}), Verdict::kRestartToTellApart);
    RejectedStep left = first.machine.rejected().value();
    left.places = "there";
    Case again(faults(type), left);
    EXPECT_EQ(again.verdict_on(2, {kGood}), Verdict::kFailed);
    EXPECT_THAT(again.text, HasSubstr(type == InjectedError::kCorrectResult ? "is right" : "lasting fault"));
  }
}

TEST(RerunStateMachine, InjectsIntoOneStepOfSoMany) {
  Case run({.error_injection_rate = 10, .error_injection_type = InjectedError::kTransientError});
  int rejected = 0;
  for (int64_t i = 1; i <= 1000; ++i) rejected += run.verdict_on(i, {kGood, kGood}).has_value();
  EXPECT_GT(rejected, 60);
  EXPECT_LT(rejected, 140);
}

TEST(RerunStateMachine, ReportsHowFarStepsDiffer) {
  Case run({.rerun_mode = RerunMode::kReportStats});
  EXPECT_EQ(run.machine.statistics(), "");
  EXPECT_EQ(run.verdict_on(1, {kGood, kGood}), std::nullopt);
  EXPECT_EQ(run.verdict_on(2, {kGood, {2.002, 1, 8}}), std::nullopt);
  EXPECT_THAT(run.machine.statistics(), HasSubstr("1 of 2 steps"));
  EXPECT_THAT(run.machine.statistics(), HasSubstr("is 0.001"));
}

}  // namespace
}  // namespace megatron
