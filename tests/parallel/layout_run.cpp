#include "tests/parallel/layout_run.h"

#include <gtest/gtest.h>

#include <mutex>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/config/layouts.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {

void run_layout(const std::string& words, int num_ranks, const RankFunction& function) {
  const PretrainConfig config = small_config(words, num_ranks);
  const ParallelLayout layout = parallel_layout_of(config);
  ThreadWorld ranks(num_ranks, std::chrono::minutes(1));
  run_rank_threads(ranks, [&](World& world) {
    Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, layout)});
    function(trainer);
  });
}

Curve train_layout(const std::string& words, int num_ranks, int num_steps) {
  std::vector<Curve> curves(static_cast<size_t>(num_ranks));
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    Curve& own = curves[static_cast<size_t>(trainer.groups().world.rank())];
    for (int step = 0; step < num_steps; ++step) {
      const TrainStepResult result = trainer.train_step(batches_of(trainer.config(), step, trainer.groups().dp.rank()));
      own.losses.push_back(result.loss.mean());
      own.grad_norms.push_back(result.optimizer.grad_norm);
    }
  });
  for (const Curve& curve : curves) EXPECT_EQ(curve, curves[0]) << "ranks disagree: " << words;
  return curves[0];
}

void expect_same_curve(const Curve& actual, const Curve& expected, const std::string& what) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    ASSERT_NEAR(actual.losses[step], expected.losses[step], 1e-11) << what << ", step " << step;
    ASSERT_NEAR(actual.grad_norms[step], expected.grad_norms[step], 1e-10) << what << ", step " << step;
  }
}

}  // namespace megatron::testing
