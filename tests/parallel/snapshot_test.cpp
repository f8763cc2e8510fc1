// A trainer that is taken to the host's memory and built anew on another grid while the process lives.
#include "megatron/training/checkpoint/snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr const char* kSize = " --num-layers 4 --global-batch-size 12 --micro-batch-size 1 --lr 1e-3";

/// All that one rank has: weights, what the optimizer keeps, counters.
struct State {
  std::vector<double> weights, optimizer;
  int64_t iteration = 0, consumed_samples = 0, num_steps = 0, schedule = 0;
  double operations = 0, loss_scale = 0;
  bool operator==(const State&) const = default;
};
State state_of(Trainer& trainer) {
  return {.weights = weights_of(trainer),
          .optimizer = optimizer_state_of(trainer),
          .iteration = trainer.progress().iteration,
          .consumed_samples = trainer.progress().consumed_train_samples,
          .num_steps = trainer.optimizer().num_steps(),
          .schedule = trainer.scheduler().num_steps(),
          .operations = trainer.progress().num_floating_point_operations,
          .loss_scale = trainer.optimizer().loss_scale()};
}

struct Outcome {
  std::vector<double> losses;
  State state;
  bool operator==(const Outcome&) const = default;
};

/// The two functions that carry a trainer from one grid to the next.
struct Carrier {
  std::function<void(Trainer&)> take, restore;
};

/// Two steps on every grid; then one rank gets what is left.
Outcome train_over(const std::string& model, const std::vector<Layout>& grids, const Carrier& carrier) {
  Outcome outcome;
  int64_t iteration = 0;
  for (const Layout& grid : grids) {
    run_layout(model + grid.words, grid.num_ranks, [&](Trainer& trainer) {
      if (iteration > 0) carrier.restore(trainer);
      const std::vector<double> losses = train(trainer, iteration, iteration + 2);
      carrier.take(trainer);
      if (trainer.groups().world.rank() == 0) outcome.losses.insert(outcome.losses.end(), losses.begin(), losses.end());
    });
    iteration += 2;
  }
  Trainer one(small_config(model), {});
  carrier.restore(one);
  outcome.state = state_of(one);
  return outcome;
}

Outcome through_memory(const std::string& model, const std::vector<Layout>& grids) {
  TrainerSnapshot snapshot;
  return train_over(model, grids,
                    {.take = [&](Trainer& trainer) { snapshot.take(trainer); },
                     .restore = [&](Trainer& trainer) { snapshot.restore(trainer); }});
}

Outcome through_files(const std::string& model, const std::vector<Layout>& grids) {
  const ScratchDirectory directory;
  PosixFileSystem files;
  const std::string words = model + " --save-interval 1 --save " + directory.path() + " --load " + directory.path();
  const auto checkpointer = [&](Trainer& trainer) { return Checkpointer(files, trainer.config(), {}); };
  return train_over(words, grids,
                    {.take = [&](Trainer& trainer) { checkpointer(trainer).save(trainer); },
                     .restore = [&](Trainer& trainer) { EXPECT_TRUE(checkpointer(trainer).load(trainer)); }});
}

const std::vector<Layout> kFourThreeTwo = {{"", 4}, {"", 3}, {"", 2}};
const std::vector<Layout> kShardedFourThreeTwo = {
    {" --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", 4},
    {" --use-distributed-optimizer", 3},
    {" --use-distributed-optimizer --overlap-grad-reduce", 2}};
const std::vector<Layout> kOfAllKinds = {
    {" --tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2", 4},
    {" --use-distributed-optimizer", 3},
    {" --pipeline-model-parallel-size 2 --pipeline-schedule zb-v", 2},
    {" --tensor-model-parallel-size 4", 4}};

TEST(TrainerSnapshot, FewerReplicasGoOnAsFromFilesBitForBit) {
  for (const std::string precision : {" --bf16", " --fp16 --initial-loss-scale 65536"})
    for (const auto& grids : {kFourThreeTwo, kShardedFourThreeTwo}) {
      const std::string model = gpt2_like(kSize + precision);
      const Outcome expected = through_files(model, grids), actual = through_memory(model, grids);
      EXPECT_EQ(actual, expected) << precision;
      EXPECT_EQ(actual.state.iteration, 6);
      EXPECT_EQ(actual.state.consumed_samples, 72);
    }
}

TEST(TrainerSnapshot, AnyGridGoesOnAsFromFilesBitForBit) {
  for (const std::string precision : {" --fp64", " --bf16"}) {
    const std::string model = llama_like(kSize + precision);
    EXPECT_EQ(through_memory(model, kOfAllKinds), through_files(model, kOfAllKinds)) << precision;
  }
}

TEST(TrainerSnapshot, GridsThatChangeGiveTheLossesOfOneRank) {
  for (const std::string& model :
       {gpt2_like(kSize + std::string(" --fp64")), llama_like(kSize + std::string(" --fp64"))})
    for (const auto& grids : {kFourThreeTwo, kShardedFourThreeTwo, kOfAllKinds}) {
      const Outcome actual = through_memory(model, grids);
      const Curve one = train_layout(model, 1, static_cast<int>(2 * grids.size()));
      ASSERT_EQ(actual.losses.size(), one.losses.size());
      for (size_t step = 0; step < one.losses.size(); ++step)
        EXPECT_NEAR(actual.losses[step], one.losses[step], 1e-11) << "step " << step;
    }
}

TEST(TrainerSnapshot, LeavesNoTraceInTheTrainerThatIsTaken) {
  for (const std::string words : {" --bf16 --use-distributed-optimizer", " --fp64 --tensor-model-parallel-size 3"}) {
    const std::string model = llama_like(kSize + std::string(" --num-attention-heads 6 --num-query-groups 3 ") +
                                         "--hidden-size 24 --ffn-hidden-size 48" + words);
    std::vector<State> taken(3), untouched(3);
    TrainerSnapshot snapshot;
    run_layout(model, 3, [&](Trainer& trainer) {
      train(trainer, 0, 2);
      snapshot.take(trainer);
      train(trainer, 2, 4);
      taken[static_cast<size_t>(trainer.groups().world.rank())] = state_of(trainer);
    });
    run_layout(model, 3, [&](Trainer& trainer) {
      train(trainer, 0, 4);
      untouched[static_cast<size_t>(trainer.groups().world.rank())] = state_of(trainer);
    });
    EXPECT_EQ(taken, untouched) << words;
  }
}

/// Live bytes of each use on rank 0, after `num_steps` steps from what `prepare` leaves.
std::vector<int64_t> live_bytes_of(const std::string& words, int num_ranks, const RankFunction& prepare) {
  std::vector<int64_t> bytes;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    prepare(trainer);
    train(trainer, trainer.progress().iteration, trainer.progress().iteration + 1);
    if (trainer.groups().world.rank() > 0) return;
    for (int use = 0; use < kNumMemoryUses; ++use)
      bytes.push_back(trainer.device().arena.amount(static_cast<MemoryUse>(use)).live);
    bytes.push_back(trainer.device().pinned.total().live);
  });
  return bytes;
}

int64_t mapped_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

TEST(TrainerSnapshot, ARebuiltTrainerHasTheMemoryOfAFreshOne) {
  const std::string model = gpt2_like(kSize + std::string(" --bf16"));
  for (const Layout& grid : kOfAllKinds) {
    TrainerSnapshot snapshot;
    run_layout(model, 4, [&](Trainer& trainer) {
      train(trainer, 0, 1);
      snapshot.take(trainer);
    });
    const std::vector<int64_t> fresh = live_bytes_of(model + grid.words, grid.num_ranks, [](Trainer&) {});
    EXPECT_EQ(live_bytes_of(model + grid.words, grid.num_ranks, [&](Trainer& trainer) { snapshot.restore(trainer); }),
              fresh)
        << grid.words;
  }
}

/// A trainer that stayed would keep the address space of its arenas, each as large as the machine's memory.
TEST(TrainerSnapshot, RebuildingAgainAndAgainLeavesNothingBehind) {
  const std::string model = gpt2_like(kSize);
  TrainerSnapshot snapshot;
  const auto rebuild = [&](int num_ranks, bool is_first) {
    run_layout(model, num_ranks, [&](Trainer& trainer) {
      if (!is_first) snapshot.restore(trainer);
      train(trainer, trainer.progress().iteration, trainer.progress().iteration + 1);
      snapshot.take(trainer);
    });
  };
  rebuild(4, true);
  const int64_t bytes = snapshot.bytes(), mapped = mapped_bytes();
  for (int i = 0; i < 4; ++i)
    for (const int num_ranks : {3, 2, 4}) rebuild(num_ranks, false);
  EXPECT_LT(snapshot.bytes(), bytes + bytes / 100) << "older snapshots went";
  EXPECT_LT(mapped_bytes(), mapped + HostMemoryFiles().available_bytes("") / 2);
}

TEST(TrainerSnapshot, CarriesEverythingWhateverTheCheckpointFlagsSay) {
  const std::string model = gpt2_like(kSize), flags = " --finetune --no-load-optim --no-save-optim --load nowhere";
  TrainerSnapshot snapshot;
  Trainer trainer(small_config(model + flags), {}), other(small_config(model + flags), {});
  train(trainer, 0, 2);
  snapshot.take(trainer);
  snapshot.restore(other);
  EXPECT_EQ(state_of(other), state_of(trainer));
}

TEST(TrainerSnapshot, MayBeTakenBeforeTheFirstStepAndAgainEarlierThanBefore) {
  const std::string model = gpt2_like(kSize);
  TrainerSnapshot snapshot;
  Trainer first(small_config(model), {}), second(small_config(model), {}), third(small_config(model), {});
  snapshot.take(first);
  train(first, 0, 2);
  snapshot.take(first);
  snapshot.take(second);
  snapshot.restore(third);
  EXPECT_EQ(state_of(third), state_of(second));
  EXPECT_NE(state_of(third), state_of(first));
}

TEST(TrainerSnapshot, AFailureOfOneRankLeavesTheOlderOne) {
  const std::string model = gpt2_like(kSize);
  TrainerSnapshot snapshot;
  State older;
  run_layout(model, 2, [&](Trainer& trainer) {
    train(trainer, 0, 1);
    snapshot.take(trainer);
    if (trainer.groups().world.rank() == 0) older = state_of(trainer);
  });
  EXPECT_THROW(run_layout(model, 2,
                          [&](Trainer& trainer) {
                            snapshot.restore(trainer);
                            train(trainer, 1, 2);
                            require<Error>(trainer.groups().world.rank() == 0, "rank 1 is lost");
                            snapshot.take(trainer);
                          }),
               RankFailure);
  Trainer one(small_config(model), {});
  snapshot.restore(one);
  EXPECT_EQ(state_of(one), older);
}

TEST(TrainerSnapshot, SaysThatThereIsNoneAndRefusesAnotherModel) {
  TrainerSnapshot snapshot;
  Trainer trainer(small_config(gpt2_like(kSize)), {}), other(small_config(llama_like(kSize)), {});
  EXPECT_THAT([&] { snapshot.restore(trainer); },
              ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr("take()")));
  snapshot.take(trainer);
  EXPECT_THROW(snapshot.restore(other), CheckpointError);
}

}  // namespace
}  // namespace megatron::testing
