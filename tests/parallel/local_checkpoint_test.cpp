// --non-persistent-ckpt-type local: ranks resume from their own checkpoints, from copies of lost ones, or fall back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>

#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

constexpr const char* kModel = " --num-layers 4 --global-batch-size 12 --micro-batch-size 1 --lr 1e-3";
constexpr const char* kReplication = " --replication --replication-jump 1";

/// The end of a run on all ranks.
struct RunResult {
  int64_t first_iteration = 0;              // that the run resumed from
  std::vector<std::vector<double>> states;  // of each rank
  std::vector<std::string> warnings;        // of rank 0
};

/// A run's folders: the one of --save, and a local one, which stands for those of all nodes.
struct LocalFolders {
  ScratchDirectory persistent, local;

  std::string words() const {
    return saving(persistent) + loading(persistent) + " --non-persistent-ckpt-type local" +
           " --non-persistent-local-ckpt-dir " + local.path();
  }
  std::string global_words() const {
    return saving(persistent) + loading(persistent) + " --non-persistent-ckpt-type global";
  }
  fs::path held(int holder, int owner) const {
    return fs::path(local.path()) / fmt::format("rank_{}", holder) / fmt::format("of_{}", owner);
  }
  std::vector<int64_t> iterations(int holder, int owner) const {
    PosixFileSystem files;
    return CheckpointDirectory(files, held(holder, owner)).complete();
  }
  void copy(const std::string& from, const fs::path& to) const {
    fs::create_directories(to);
    fs::copy(from, to, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
  }
};

using Action = std::function<void(Trainer&, Checkpointer&)>;

void train_to(Trainer& trainer, int64_t iteration) { train(trainer, trainer.progress().iteration, iteration); }
/// Trains to an iteration and saves a persistent checkpoint, or one of --non-persistent-ckpt-type.
Action persistent_at(int64_t iteration) {
  return [=](Trainer& trainer, Checkpointer& checkpointer) {
    train_to(trainer, iteration);
    checkpointer.save(trainer);
  };
}
Action local_at(int64_t iteration) {
  return [=](Trainer& trainer, Checkpointer& checkpointer) {
    train_to(trainer, iteration);
    checkpointer.save_non_persistent(trainer);
  };
}

RunResult resume(const std::string& words, const Layout& layout, const std::vector<Action>& actions) {
  RunResult result{.first_iteration = 0, .states = {}, .warnings = {}};
  result.states.resize(static_cast<size_t>(layout.num_ranks));
  std::mutex mutex;
  run_layout(words + layout.words, layout.num_ranks, [&](Trainer& trainer) {
    PosixFileSystem files;
    const auto rank = static_cast<size_t>(trainer.groups().world.rank());
    std::vector<std::string> warnings;
    const MessageLog log{.on_info = {}, .on_warning = [&](const std::string& text) { warnings.push_back(text); }};
    Checkpointer checkpointer(files, trainer.config(), log);
    checkpointer.load(trainer);
    const int64_t first_iteration = trainer.progress().iteration;
    for (const Action& action : actions) action(trainer, checkpointer);
    const std::lock_guard lock(mutex);
    result.states[rank] = weights_of(trainer);
    std::ranges::copy(optimizer_state_of(trainer), std::back_inserter(result.states[rank]));
    if (rank > 0) return;
    result.first_iteration = first_iteration;
    result.warnings = warnings;
  });
  return result;
}

Action to(int64_t iteration) {
  return [=](Trainer& trainer, Checkpointer&) { train_to(trainer, iteration); };
}

TEST(LocalCheckpoint, ResumesBitEqualOnTheLayoutThatSavedIt) {
  for (const Layout& layout :
       {Layout{"", 3}, Layout{" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 4},
        Layout{" --use-distributed-optimizer --tensor-model-parallel-size 2 --bf16", 4},
        Layout{" --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --bf16", 2},
        Layout{" --num-experts 4 --expert-model-parallel-size 2", 4}, Layout{" --bf16 --optimizer sgd", 2}})
    for (const char* algorithm : {"fully_parallel", "atomic"}) {
      SCOPED_TRACE(layout.words + " " + algorithm);
      const LocalFolders folders;
      const std::string words = llama_like(kModel) + folders.words() + " --non-persistent-local-ckpt-algo " + algorithm;
      const RunResult whole = resume(words, layout, {persistent_at(1), local_at(2), to(4)});
      const RunResult resumed = resume(words, layout, {to(4)});
      EXPECT_THAT(resumed.warnings, IsEmpty());
      EXPECT_EQ(resumed.first_iteration, 2);
      EXPECT_EQ(resumed.states, whole.states);
    }
}

TEST(LocalCheckpoint, TheNewerOfLocalAndPersistentIsLoaded) {
  const LocalFolders folders;
  const std::string words = gpt2_like(kModel) + folders.words();
  resume(words, {"", 2}, {local_at(1)});
  EXPECT_EQ(resume(words, {"", 2}, {persistent_at(2)}).first_iteration, 1) << "also where --load is empty";
  EXPECT_EQ(resume(words, {"", 2}, {local_at(3)}).first_iteration, 2);
  EXPECT_EQ(resume(words, {"", 2}, {}).first_iteration, 3);
  EXPECT_EQ(resume(words + " --ckpt-step 2", {"", 2}, {}).first_iteration, 2);
  EXPECT_EQ(resume(words + " --finetune", {"", 2}, {}).first_iteration, 0);
}

TEST(LocalCheckpoint, TheNewestOfLocalGlobalAndPersistentIsLoaded) {
  const LocalFolders folders;
  const std::string local = gpt2_like(kModel) + folders.words(), global = gpt2_like(kModel) + folders.global_words();
  resume(local, {"", 2}, {persistent_at(1), local_at(2)});
  EXPECT_EQ(resume(global, {"", 2}, {local_at(3)}).first_iteration, 1) << "global does not look at local ones";
  EXPECT_EQ(resume(local, {"", 2}, {local_at(4)}).first_iteration, 3);
  EXPECT_EQ(resume(local, {"", 2}, {persistent_at(5)}).first_iteration, 4);
  EXPECT_EQ(resume(local, {"", 2}, {}).first_iteration, 5);
}

TEST(LocalCheckpoint, ALostRankIsRefilledFromItsClique) {
  const LocalFolders folders;
  const std::string words = gpt2_like(kModel) + folders.words() + " --replication --replication-jump 2";
  const RunResult whole = resume(words, {"", 4}, {persistent_at(1), local_at(2), to(3)});
  for (int rank = 0; rank < 4; ++rank) EXPECT_THAT(folders.iterations(rank, (rank + 2) % 4), ElementsAre(2));
  for (const int rank : {0, 1}) fs::remove_all(folders.held(rank, rank).parent_path());  // a node
  const RunResult resumed = resume(words, {"", 4}, {to(3)});
  EXPECT_EQ(resumed.first_iteration, 2);
  EXPECT_EQ(resumed.states, whole.states);
  EXPECT_THAT(folders.iterations(1, 1), ElementsAre(2));
}

TEST(LocalCheckpoint, WithoutReplicationALostRankMakesAllFallBack) {
  const LocalFolders folders;
  const std::string words = gpt2_like(kModel) + folders.words();
  resume(words, {"", 3}, {persistent_at(1), local_at(2)});
  fs::remove_all(folders.held(1, 1));
  const RunResult resumed = resume(words, {"", 3}, {});
  EXPECT_EQ(resumed.first_iteration, 1);
  EXPECT_THAT(resumed.warnings, Contains(HasSubstr("no rank holds iteration 2 of rank 1")));
}

TEST(LocalCheckpoint, TheLatestIterationThatAllRanksHoldIsTaken) {
  const LocalFolders folders;
  const ScratchDirectory earlier;
  const std::string words = gpt2_like(kModel) + folders.words();
  resume(words, {"", 2}, {persistent_at(1), local_at(2)});
  folders.copy(folders.local.path(), earlier.path());
  resume(words, {"", 2}, {local_at(3)});
  // A kill after rank 0 has committed its part, and before rank 1 has.
  folders.copy(earlier.file("rank_0/of_0/iter_0000002"), folders.held(0, 0) / "iter_0000002");
  fs::remove_all(folders.held(1, 1));
  folders.copy(earlier.file("rank_1/of_1"), folders.held(1, 1));
  EXPECT_EQ(resume(words, {"", 2}, {}).first_iteration, 2);
}

TEST(LocalCheckpoint, OlderIterationsAndThoseOfAnAbandonedRunAreDeleted) {
  const LocalFolders folders;
  const std::string words = gpt2_like(kModel) + folders.words() + kReplication;
  const auto expect_everywhere = [&](int64_t iteration) {
    for (const int holder : {0, 1})
      for (const int owner : {0, 1}) EXPECT_THAT(folders.iterations(holder, owner), ElementsAre(iteration));
  };
  resume(words, {"", 2}, {persistent_at(1), local_at(2), local_at(3), local_at(5)});
  expect_everywhere(5);
  resume(words + " --ckpt-step 1", {"", 2}, {local_at(2)});
  expect_everywhere(2);
}

TEST(LocalCheckpoint, AnotherLayoutOrRunLoadsThePersistentOneWithAWarning) {
  const LocalFolders folders, others;
  const std::string words = gpt2_like(kModel);
  resume(words + folders.words(), {"", 4}, {persistent_at(1), local_at(2)});
  const auto expect_warning = [&](const std::string& more, const std::string& text) {
    const RunResult resumed = resume(words + folders.words() + more, {"", 4}, {});
    EXPECT_THAT(resumed.warnings, Contains(HasSubstr(text)));
    return resumed.first_iteration;
  };
  EXPECT_EQ(expect_warning(" --tensor-model-parallel-size 2",
                           "on rank 0 it has '--tensor-model-parallel-size 1', this run has "
                           "'--tensor-model-parallel-size 2'"),
            1);
  EXPECT_EQ(expect_warning(" --non-persistent-local-ckpt-algo atomic", "is of another run or layout"), 1);
  EXPECT_EQ(expect_warning(loading(others.persistent), "it has 'checkpoints in "), 0);
}

TEST(LocalCheckpoint, ADamagedFileCountsAsLost) {
  const LocalFolders folders;
  const std::string words = gpt2_like(kModel) + folders.words() + kReplication;
  const auto damage = [&](int holder) {
    const fs::path file = folders.held(holder, 1) / "iter_0000002/__1_0.distcp";
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(fs::file_size(file) / 2)).write("damage", 6);
  };
  const RunResult whole = resume(words, {"", 2}, {persistent_at(1), local_at(2), to(3)});
  damage(1);
  const RunResult resumed = resume(words, {"", 2}, {to(3)});
  EXPECT_THAT(resumed.warnings, Contains(HasSubstr("a local checkpoint on rank 1 is damaged and was deleted")));
  EXPECT_EQ(resumed.first_iteration, 2);
  EXPECT_EQ(resumed.states, whole.states);
  damage(0);
  damage(1);
  EXPECT_EQ(resume(words, {"", 2}, {}).first_iteration, 1);
}

TEST(LocalCheckpoint, FullyParallelStoresOnceWhatAllReplicasHold) {
  const auto bytes_of = [](const std::string& algorithm, int rank) {
    const LocalFolders folders;
    resume(gpt2_like(kModel) + folders.words() + " --non-persistent-local-ckpt-algo " + algorithm, {"", 3},
           {local_at(1)});
    return fs::file_size(folders.held(rank, rank) / fmt::format("iter_0000001/__{}_0.distcp", rank));
  };
  for (int rank = 0; rank < 3; ++rank) EXPECT_LT(bytes_of("fully_parallel", rank), bytes_of("atomic", rank) / 2);
}

TEST(ReplicaClique, IsTheRanksThatAreOneJumpApart) {
  EXPECT_THAT(replica_clique(0, 2, 2), ElementsAre(0, 2));
  EXPECT_THAT(replica_clique(3, 2, 2), ElementsAre(1, 3));
  EXPECT_THAT(replica_clique(6, 2, 2), ElementsAre(4, 6));
  EXPECT_THAT(replica_clique(7, 1, 4), ElementsAre(4, 5, 6, 7));
}

}  // namespace
}  // namespace megatron::testing
