// --optimizer-cpu-offload: state in host memory gives the bits of state on the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/checkpoint/snapshot.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/planning/step_plan.h"
#include "tests/testing/rank_places.h"
#include "tests/training/checkpoint/checkpoint_session.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using ::testing::HasSubstr;
using testing::llama_like;
using ::testing::Not;
using testing::optimizer_state_of;
using testing::ScratchDirectory;
using testing::Session;
using testing::small_config;
using testing::train;
using testing::weights_of;

/// Pieces that no weight of these models divides by, and several for most.
constexpr int64_t kPiece = 192;
const std::string kAll = " --optimizer-cpu-offload";
const std::string kThird = kAll + " --optimizer-offload-fraction 0.33";
const std::string kOverlap = kAll + " --overlap-cpu-optimizer-d2h-h2d";
const std::string kTenBytes =
    " --bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --main-grads-dtype bf16";

PretrainConfig config_of(const std::string& words, int num_ranks = 1) {
  PretrainConfig config = small_config(words, num_ranks);
  config.optimizer.host_piece_elements = kPiece;
  return config;
}

struct Outcome {
  std::vector<double> losses, weights, state;
  double params_norm = 0;
  bool operator==(const Outcome&) const = default;
};
Outcome outcome_of(Trainer& trainer, int64_t num_steps) {
  const int64_t begin = trainer.progress().iteration;
  Outcome outcome{.losses = train(trainer, begin, begin + num_steps)};
  outcome.weights = weights_of(trainer);
  outcome.state = optimizer_state_of(trainer);
  outcome.params_norm = trainer.params_norm();
  return outcome;
}
Outcome outcome_of(const std::string& words, const Trainer::Options& options = {}) {
  Trainer trainer(config_of(words), options);
  return outcome_of(trainer, 4);
}

int64_t bytes_of(const Arena& arena) { return arena.amount(MemoryUse::kOptimizer).live; }

TEST(OptimizerOffload, HasTheBitsOfThePlainOptimizerInEveryPrecision) {
  for (const std::string& model : {gpt2_like(), llama_like()})
    for (const std::string& precision :
         {std::string(), std::string(" --bf16"), std::string(" --fp64"),
          std::string(" --fp16 --initial-loss-scale 1024"), std::string(" --bf16 --use-precision-aware-optimizer"),
          kTenBytes, kTenBytes + " --main-params-dtype bf16"}) {
      const Outcome plain = outcome_of(model + precision);
      for (const std::string& way : {kAll, kThird, kOverlap}) {
        SCOPED_TRACE(model + precision + way);
        EXPECT_TRUE(outcome_of(model + precision + way) == plain);
      }
    }
}

TEST(OptimizerOffload, TouchesDeviceMemoryInCopiesAlone) {
  for (const std::string& precision : {std::string(" --bf16"), kTenBytes}) {
    const std::string words = llama_like(precision);
    EXPECT_TRUE(outcome_of(words + kOverlap, {.guard = true}) == outcome_of(words));
  }
}

TEST(OptimizerOffload, HasTheBitsOfThePlainOptimizerWhateverIsStepped) {
  for (const char* words :
       {" --optimizer sgd --sgd-momentum 0.9", " --optimizer sgd --sgd-momentum 0",
        " --bf16 --use-distributed-optimizer", " --decoupled-lr 1e-4 --weight-decay 0.1 --clip-grad 0.01",
        " --clip-grad 0", " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}) {
    SCOPED_TRACE(words);
    const Outcome plain = outcome_of(llama_like(words));
    for (const std::string& way : {kAll, kThird, kOverlap}) EXPECT_TRUE(outcome_of(llama_like(words + way)) == plain);
  }
}

TEST(OptimizerOffload, LeavesAllAsItIsWhereGradientsOverflow) {
  for (const std::string& way : {kAll, kThird, kOverlap}) {
    Trainer trainer(config_of(llama_like("--fp16 --initial-loss-scale 1e9 --hysteresis 1" + way)), {});
    const std::vector<double> weights = weights_of(trainer), state = optimizer_state_of(trainer);
    EXPECT_FALSE(trainer.train_step(testing::batches_of(trainer.config(), 0)).optimizer.success);
    EXPECT_EQ(weights_of(trainer), weights);
    EXPECT_EQ(optimizer_state_of(trainer), state);
    EXPECT_TRUE(outcome_of(trainer, 8) == [&] {
      Trainer plain(config_of(llama_like("--fp16 --initial-loss-scale 1e9 --hysteresis 1")), {});
      plain.train_step(testing::batches_of(plain.config(), 0));
      return outcome_of(plain, 8);
    }());
  }
}

TEST(OptimizerOffload, MovesTheStateFromTheDeviceToTheHost) {
  for (const std::string& precision : {std::string(" --bf16"), kTenBytes, std::string()}) {
    SCOPED_TRACE(precision);
    Trainer plain(config_of(llama_like(precision)), {});
    Trainer all(config_of(llama_like(precision + kAll)), {}),
        half(config_of(llama_like(precision + kAll + " --optimizer-offload-fraction 0.5")), {});
    int64_t state = 0, elements = 0, on_host = 0, largest = 0;
    for (const OptimizerState& s : plain.optimizer().states())
      for (const Tensor* x : {&s.main, &s.remainder, &s.exp_avg, &s.exp_avg_sq})
        if (x->defined() && !(x == &s.main && s.steps_weights())) state += x->bytes();
    EXPECT_EQ(plain.device().pinned.total().peak, 0);
    EXPECT_LE(bytes_of(all.device().arena), bytes_of(plain.device().arena) - state);
    EXPECT_GE(bytes_of(all.device().pinned), state);
    EXPECT_LT(bytes_of(all.device().pinned), state + 2 * 4096 + 1) << "one place of staging memory";
    for (const OptimizerState& s : half.optimizer().states()) {
      const int64_t size = s.end - s.begin;
      elements += size;
      largest = std::max(largest, size);
      if (s.is_on_host) on_host += size;
    }
    EXPECT_GE(2 * on_host, elements);
    EXPECT_LT(2 * (on_host - largest), elements);
  }
}

TEST(OptimizerOffload, OfNothingIsThePlainOptimizer) {
  const std::string words = llama_like(" --bf16"), nothing = words + kAll + " --optimizer-offload-fraction 0";
  Trainer trainer(config_of(nothing), {});
  EXPECT_EQ(trainer.device().pinned.total().peak, 0);
  EXPECT_TRUE(outcome_of(nothing) == outcome_of(words));
}

TEST(OptimizerOffload, IsPlannedToTheByteInBothMemories) {
  for (const std::string& way : {kAll, kThird, kOverlap})
    for (const std::string& precision : {std::string(" --bf16"), kTenBytes + " --main-params-dtype bf16"}) {
      SCOPED_TRACE(precision + way);
      const PretrainConfig config = config_of(gpt2_like(precision + way));
      Trainer real(config, {.record_events = true}), plan(config, {.device = DeviceKind::kMeta, .record_events = true});
      for (Trainer* trainer : {&real, &plan}) train(*trainer, 0, 2);
      EXPECT_TRUE(plan.device().arena.events() == real.device().arena.events());
      EXPECT_TRUE(plan.device().pinned.events() == real.device().pinned.events());
      const MemoryPlan memory = plan_steps(config, 0, DeviceKind::kCpu, testing::places_on_hosts_of(1, 1)).memory;
      EXPECT_EQ(memory.host, real.device().pinned.high_water_bytes());
      EXPECT_THAT(memory_table(memory, {}, 0), HasSubstr("beside it, page-locked memory of the host"));
    }
  const MemoryPlan plain =
      plan_steps(config_of(gpt2_like()), 0, DeviceKind::kCpu, testing::places_on_hosts_of(1, 1)).memory;
  EXPECT_THAT(memory_table(plain, {}, 0), Not(HasSubstr("page-locked")));
}

TEST(OptimizerOffload, ResumesFromCheckpointsOfAnyFraction) {
  for (const std::string& precision :
       {std::string(" --bf16"), std::string(" --bf16 --use-distributed-optimizer"), kTenBytes, std::string()})
    for (const auto& [before, after] :
         {std::pair<std::string, std::string>{"", kAll}, {kAll, ""}, {kThird, kOverlap}}) {
      SCOPED_TRACE(precision + before + " to" + after);
      const ScratchDirectory directory;
      const std::string words = llama_like(precision);
      Session saving(config_of(words + before + testing::saving(directory)));
      saving.save_at(2);
      Session plain(config_of(words + testing::loading(directory)));
      Session resumed(config_of(words + after + testing::loading(directory)));
      ASSERT_TRUE(plain.checkpointer.load(plain.trainer));
      ASSERT_TRUE(resumed.checkpointer.load(resumed.trainer));
      const Outcome expected = outcome_of(saving.trainer, 2);
      EXPECT_TRUE(outcome_of(plain.trainer, 2) == expected);
      EXPECT_TRUE(outcome_of(resumed.trainer, 2) == expected);
    }
}

TEST(OptimizerOffload, IsReducedToASnapshot) {
  Trainer straight(config_of(gpt2_like(" --bf16" + kThird)), {}), rebuilt(config_of(gpt2_like(" --bf16" + kAll)), {});
  train(straight, 0, 2);
  TrainerSnapshot snapshot;
  snapshot.take(straight);
  snapshot.restore(rebuilt);
  EXPECT_TRUE(outcome_of(rebuilt, 1) == outcome_of(straight, 1));
}

/// Shards of buckets, whose ranges begin anywhere in a weight, and weights gathered after or during the next step.
TEST(OptimizerOffload, HasTheBitsOfThePlainOptimizerOnShardsOfTwoReplicas) {
  for (const std::string& words :
       {std::string(" --bf16 --use-distributed-optimizer"),
        kTenBytes + " --main-params-dtype bf16 --use-distributed-optimizer --overlap-grad-reduce "
                    "--overlap-param-gather",
        std::string(" --fp16 --initial-loss-scale 1e9 --tensor-model-parallel-size 2")}) {
    std::array<std::array<Outcome, 2>, 4> outcomes;
    const std::string ways[] = {"", kAll, kThird, kOverlap};
    for (size_t way = 0; way < outcomes.size(); ++way) {
      const PretrainConfig config = config_of(llama_like(words + ways[way]), 2);
      ThreadWorld ranks(2, std::chrono::minutes(1));
      run_rank_threads(ranks, [&](World& world) {
        Trainer trainer(config, {.groups = ProcessGroupCollection::make(world, parallel_layout_of(config))});
        const int64_t replica = trainer.groups().dp.rank();
        Outcome& outcome = outcomes.at(way).at(static_cast<size_t>(world.rank()));
        for (int64_t step = 0; step < 4; ++step)
          outcome.losses.push_back(trainer.train_step(testing::batches_of(config, step, replica)).loss.mean());
        trainer.finish_param_sync();
        outcome.weights = weights_of(trainer);
        outcome.state = optimizer_state_of(trainer);
        outcome.params_norm = trainer.params_norm();
      });
      EXPECT_TRUE(outcomes.at(way) == outcomes[0]) << words << ways[way];
    }
  }
}

}  // namespace
}  // namespace megatron
