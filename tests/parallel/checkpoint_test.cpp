// Checkpoints across layouts of ranks: what one layout saves, any other loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/checkpointer.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

struct Layout {
  std::string words;
  int num_ranks = 1;
};

std::string saving(const ScratchDirectory& directory) { return " --save " + directory.path() + " --save-interval 1"; }
std::string loading(const ScratchDirectory& directory) { return " --load " + directory.path(); }

/// Loads where the words say so, trains to `iteration`, saves where they say so.
std::vector<double> continue_to(const std::string& words, const Layout& layout, int64_t iteration) {
  std::vector<double> losses;
  run_layout(words + layout.words, layout.num_ranks, [&](Trainer& trainer) {
    PosixFileSystem files;
    Checkpointer checkpointer(files, trainer.config(), [](const std::string&) {});
    EXPECT_EQ(checkpointer.load(trainer), trainer.config().checkpoint.load.has_value());
    const std::vector<double> own = train(trainer, trainer.progress().iteration, iteration);
    if (trainer.config().checkpoint.save) checkpointer.save(trainer);
    if (trainer.groups().world.rank() == 0) losses = own;
  });
  return losses;
}

/// All that one rank loads: weights, what the optimizer keeps, counters.
struct State {
  std::vector<double> weights, optimizer;
  int64_t iteration = 0, consumed_samples = 0, num_steps = 0, schedule = 0;
  bool operator==(const State&) const = default;
};
State state_of(const std::string& words, const ScratchDirectory& directory) {
  Trainer trainer(small_config(words + loading(directory)), {});
  PosixFileSystem files;
  Checkpointer checkpointer(files, trainer.config(), [](const std::string&) {});
  EXPECT_TRUE(checkpointer.load(trainer));
  return {.weights = weights_of(trainer),
          .optimizer = optimizer_state_of(trainer),
          .iteration = trainer.progress().iteration,
          .consumed_samples = trainer.progress().consumed_train_samples,
          .num_steps = trainer.optimizer().num_steps(),
          .schedule = trainer.scheduler().num_steps()};
}

const std::vector<Layout> kLayouts = {{"", 1}, {"", 2}, {"", 3}, {"", 4}, {"", 6}};
constexpr const char* kSize = " --num-layers 4 --global-batch-size 12 --micro-batch-size 1 --lr 1e-3";

TEST(ParallelCheckpoint, MovesFromAnyLayoutToAnyOtherBitForBit) {
  for (const std::string& model : {gpt2_like(kSize), llama_like(std::string(kSize) + " --bf16")})
    for (const Layout& from : kLayouts) {
      const ScratchDirectory first;
      continue_to(model + saving(first), from, 2);
      const State expected = state_of(model, first);
      EXPECT_EQ(expected.iteration, 2);
      EXPECT_EQ(expected.consumed_samples, 24);
      for (const Layout& to : kLayouts) {
        const ScratchDirectory second;
        continue_to(model + loading(first) + saving(second), to, 2);
        EXPECT_EQ(state_of(model, second), expected) << from.words << " to " << to.words;
      }
    }
}

TEST(ParallelCheckpoint, TrainingGoesOnAsOnOneRank) {
  for (const std::string& model : {gpt2_like(kSize), llama_like(kSize)}) {
    const std::string words = model + " --fp64";
    const std::vector<double> whole = continue_to(words, {}, 5);
    for (const Layout& from : kLayouts)
      for (const Layout& to : {kLayouts[0], kLayouts[2], kLayouts[4]}) {
        const ScratchDirectory directory;
        continue_to(words + saving(directory), from, 2);
        const std::vector<double> losses = continue_to(words + loading(directory), to, 5);
        ASSERT_EQ(losses.size(), 3);
        for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], whole[i + 2], 1e-11);
      }
  }
}

TEST(ParallelCheckpoint, EveryRankWritesItsShare) {
  const ScratchDirectory directory;
  continue_to(gpt2_like(kSize) + saving(directory), kLayouts[4], 1);
  uintmax_t least = UINTMAX_MAX, most = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto bytes = std::filesystem::file_size(directory.file(fmt::format("iter_0000001/__{}_0.distcp", rank)));
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  EXPECT_LT(most, 2 * least) << "replicas share the work";
}

TEST(ParallelCheckpoint, AFailureOfOneRankLeavesTheLastCheckpoint) {
  const ScratchDirectory directory;
  const std::string words = gpt2_like(kSize);
  continue_to(words + saving(directory), kLayouts[3], 1);
  try {
    run_layout(words + saving(directory) + loading(directory) + kLayouts[3].words, 2, [&](Trainer& trainer) {
      PosixFileSystem files;
      Checkpointer checkpointer(files, trainer.config(), [](const std::string&) {});
      checkpointer.load(trainer);
      train(trainer, 1, 2);
      require<IoError>(trainer.groups().world.rank() == 0, "rank 1's disk is full");
      checkpointer.save(trainer);
    });
    FAIL() << "the save went through";
  } catch (const RankFailure& failure) {
    EXPECT_EQ(failure.rank, 1);
    EXPECT_THAT(failure.what(), ::testing::HasSubstr("disk is full"));
  }
  EXPECT_EQ(state_of(words, directory).iteration, 1);
}

}  // namespace
}  // namespace megatron::testing
