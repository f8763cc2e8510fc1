#include "tests/parallel/layout_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

/// On a machine that is busy with other things a step may take minutes; less than what ctest allows a test.
constexpr std::chrono::minutes kTimeout{9};

}  // namespace

void run_layout(const std::string& words, int num_ranks, const RankFunction& function, const GroupFault& fault) {
  const PretrainConfig config = small_config(words, num_ranks);
  const ParallelLayout layout = parallel_layout_of(config);
  ThreadWorld ranks(num_ranks, kTimeout);
  run_rank_threads(ranks, [&](World& world) {
    ProcessGroupCollection groups = ProcessGroupCollection::make(world, layout);
    std::optional<FaultyGroup> faulty;
    if (fault.group) {
      ProcessGroup& group = fault.group(groups);
      faulty.emplace(group, world.recorder(), fault.fault, fault.number);
      group = faulty->group();
    }
    Trainer trainer(config, {.groups = groups});
    function(trainer);
  });
}

std::vector<Curve> curves_of_ranks(const std::string& words, int num_ranks, int num_steps, const GroupFault& fault) {
  std::vector<Curve> curves(static_cast<size_t>(num_ranks));
  const auto train = [&](Trainer& trainer) {
    Curve& own = curves[static_cast<size_t>(trainer.groups().world.rank())];
    for (int step = 0; step < num_steps; ++step) {
      const TrainStepResult result = trainer.train_step(batches_of(trainer.config(), step, trainer.groups().dp.rank()));
      own.losses.push_back(result.loss.mean());
      own.grad_norms.push_back(result.optimizer.grad_norm);
    }
  };
  run_layout(words, num_ranks, train, fault);
  return curves;
}

Curve train_layout(const std::string& words, int num_ranks, int num_steps) {
  const std::vector<Curve> curves = curves_of_ranks(words, num_ranks, num_steps);
  for (const Curve& curve : curves) EXPECT_EQ(curve, curves[0]) << "ranks disagree: " << words;
  return curves[0];
}

const Curve& OneRankCurves::of(const std::string& model) {
  const auto [place, is_new] = curves_.try_emplace(model);
  if (is_new) place->second = train_layout(model, 1, num_steps_);
  return place->second;
}

Departure departure(const Curve& actual, const Curve& expected) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  if (actual.losses.size() != expected.losses.size()) return {kInfinite, kInfinite};
  const auto largest = [](const std::vector<double>& a, const std::vector<double>& b) {
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double error = std::abs(a[i] - b[i]);
      most = std::isnan(error) ? kInfinite : std::max(most, error);
    }
    return most;
  };
  return {largest(actual.losses, expected.losses), largest(actual.grad_norms, expected.grad_norms)};
}

std::string difference(const Curve& actual, const Curve& expected) {
  if (actual.losses.size() != expected.losses.size()) return "another number of steps";
  const auto departs = [](double a, double b, double bound) { return !(std::abs(a - b) <= bound); };
  for (size_t step = 0; step < expected.losses.size(); ++step)
    if (departs(actual.losses[step], expected.losses[step], 1e-11) ||
        departs(actual.grad_norms[step], expected.grad_norms[step], 1e-10))
      return fmt::format("step {}: loss {:.17g}, not {:.17g}; gradient norm {:.17g}, not {:.17g}", step,
                         actual.losses[step], expected.losses[step], actual.grad_norms[step],
                         expected.grad_norms[step]);
  return "";
}

void expect_same_curve(const Curve& actual, const Curve& expected, const std::string& what) {
  EXPECT_EQ(difference(actual, expected), "") << what;
}

}  // namespace megatron::testing
