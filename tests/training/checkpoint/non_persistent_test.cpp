// --non-persistent-ckpt-type global, and --verify-integrity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/training/iteration_plan.h"
#include "tests/training/checkpoint/checkpoint_session.h"

namespace megatron::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kGlobal = " --non-persistent-ckpt-type global ";

std::vector<int64_t> complete(const std::string& folder) {
  PosixFileSystem files;
  return CheckpointDirectory(files, folder).complete();
}

TEST(NonPersistent, CheckpointsAreInAFolderOfTheirOwnThatKeepsTheNewest) {
  const ScratchDirectory directory;
  Session run(gpt2_like(saving(directory, kGlobal)));
  run.save_at(1);
  for (int64_t iteration = 2; iteration <= 4; ++iteration) {
    run.train_to(iteration);
    run.checkpointer.save_non_persistent(run.trainer);
  }
  EXPECT_THAT(complete(directory.path()), ElementsAre(1));
  EXPECT_THAT(complete(directory.file("non_persistent")), ElementsAre(4));
  EXPECT_EQ(run.checkpointer.last_saved_iteration(), 1) << "the last iteration is to be saved for good";
}

TEST(NonPersistent, ANewerOneIsLoadedIfTheTypeIsGiven) {
  const ScratchDirectory directory, elsewhere;
  for (const std::string& flags : {kGlobal, kGlobal + "--non-persistent-global-ckpt-dir " + elsewhere.path()}) {
    Session run(gpt2_like(saving(directory, flags)));
    run.save_at(1);
    run.train_to(3);
    run.checkpointer.save_non_persistent(run.trainer);
    const auto loaded = [&](const std::string& more) {
      Session other(gpt2_like(loading(directory, more)));
      EXPECT_TRUE(other.checkpointer.load(other.trainer));
      return other.trainer.progress().iteration;
    };
    EXPECT_EQ(loaded(flags), 3);
    EXPECT_EQ(loaded(""), 1);
    EXPECT_EQ(loaded(flags + " --ckpt-step 1"), 1);
    run.save_at(4);
    EXPECT_EQ(loaded(flags), 4) << "the persistent one is newer";
    std::filesystem::remove_all(directory.path());
  }
}

TEST(NonPersistent, AreDueWhereNoPersistentOneIs) {
  const PretrainConfig config =
      small_config(gpt2_like("--save x --save-interval 4 --non-persistent-save-interval 2" + kGlobal));
  const IterationPlan plan(config);
  std::vector<int64_t> due;
  for (int64_t iteration = 1; iteration <= 8; ++iteration)
    if (plan.saves_non_persistent_after(iteration)) due.push_back(iteration);
  EXPECT_THAT(due, ElementsAre(2, 6));
}

TEST(VerifyIntegrity, FindsAChangedByteThatNothingReads) {
  const ScratchDirectory directory;
  Session run(gpt2_like(saving(directory, "--verify-integrity")));
  run.save_at(1);
  const auto refusal = [&] {
    Session other(gpt2_like(loading(directory, "--verify-integrity")));
    return refusal_of(other);
  };
  EXPECT_THAT(refusal(), IsEmpty());
  const std::string file = directory.file("iter_0000001/metadata.json");
  std::ofstream(file, std::ios::app) << " ";
  EXPECT_THAT(refusal(), ::testing::AllOf(HasSubstr("--verify-integrity: "), HasSubstr("metadata.json was changed")));
  Session unchecked(gpt2_like(loading(directory)));
  EXPECT_TRUE(unchecked.checkpointer.load(unchecked.trainer));
}

TEST(VerifyIntegrity, NeedsHashesThatWereStored) {
  const ScratchDirectory directory;
  Session run(gpt2_like(saving(directory)));
  run.save_at(1);
  Session other(gpt2_like(loading(directory, "--verify-integrity")));
  EXPECT_THAT(refusal_of(other), HasSubstr("saved without --verify-integrity"));
}

}  // namespace
}  // namespace megatron::testing
