// Checkpoint flags as Megatron's own command lines carry them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/training/config/pretrain_config.h"
#include "tests/training/config/command_line.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CheckpointFlags, ThatChangeNothingAreAcceptedWithAReason) {
  for (const char* words :
       {"--use-persistent-ckpt-worker", "--async-strategy mcore", "--async-ckpt-use-cpu-shm",
        "--auto-detect-ckpt-format", "--ckpt-assume-constant-structure", "--ckpt-fully-parallel-save",
        "--ckpt-fully-parallel-save-process-group ep_dp", "--ckpt-fully-parallel-load-process-group ep_dp",
        "--ckpt-fully-parallel-load-exchange-algo gather_rounds", "--no-ckpt-load-validate-sharding-integrity",
        "--disable-ckpt-load-validate-sharding-integrity", "--dist-ckpt-save-pre-mcore-014", "--use-dist-ckpt"}) {
    const std::string notes = notes_block(parse(words_of(words)));
    const std::string flag = words_of(words).front();
    // The notes name the first of two spellings.
    const std::string named = flag.starts_with("--disable-") ? "--no-" + flag.substr(10) : flag;
    EXPECT_THAT(notes, ::testing::ContainsRegex(named + "[^\n]* has no effect here: [^\n]+\n")) << words;
  }
}

TEST(CheckpointFlags, StrictnessTakesMegatronsModes) {
  for (const auto& [mode, name] : names_of_enum(StrictHandling{}))
    EXPECT_EQ(parse({"--load", "x", "--dist-ckpt-strictness", std::string(name)}).checkpoint.dist_ckpt_strictness,
              mode);
  EXPECT_THAT(refusal(with({"--load", "x", "--dist-ckpt-strictness", "lax"})), HasSubstr("log_unexpected"));
  EXPECT_THAT(notes_block(parse({"--dist-ckpt-strictness", "log_all"})),
              HasSubstr("--dist-ckpt-strictness has no effect without --load"));
}

TEST(CheckpointFlags, NoFullyParallelSaveNeedsReplicas) {
  const Words words = {"--save", "x", "--save-interval", "5", "--no-ckpt-fully-parallel-save"};
  EXPECT_THAT(notes_block(parse(words)), HasSubstr("--no-ckpt-fully-parallel-save has no effect without"));
  EXPECT_THAT(notes_block(parse(words, 2)), Not(HasSubstr("--no-ckpt-fully-parallel-save has no effect")));
}

TEST(CheckpointFlags, OfSavesHaveNoEffectWithoutOne) {
  const auto notes = [](const std::string& words) { return notes_block(parse(words_of(words))); };
  EXPECT_THAT(notes("--async-save"), HasSubstr("--async-save has no effect without --save"));
  EXPECT_THAT(notes("--async-ckpt-cpu-priority 5 --async-ckpt-io-priority 2 --save x --save-interval 1"),
              ::testing::AllOf(HasSubstr("--async-ckpt-cpu-priority has no effect without --async-save"),
                               HasSubstr("--async-ckpt-io-priority has no effect without --async-save")));
  EXPECT_THAT(notes("--async-save --save x --save-interval 1"), Not(HasSubstr("--async-save has no effect")));
  EXPECT_THAT(notes("--dist-ckpt-workers 4 --verify-integrity"),
              ::testing::AllOf(HasSubstr("--dist-ckpt-workers has no effect without --save"),
                               HasSubstr("--verify-integrity has no effect without --save or --load")));
  EXPECT_THAT(notes("--ckpt-fully-parallel-load --load x"),
              HasSubstr("--ckpt-fully-parallel-load has no effect without --load and more than one"));
}

TEST(CheckpointFlags, OfNonPersistentCheckpointsNeedAType) {
  EXPECT_THAT(refusal(with({"--save", "x", "--save-interval", "4", "--non-persistent-save-interval", "2"})),
              HasSubstr("--non-persistent-save-interval 2 needs --non-persistent-ckpt-type global or local"));
  EXPECT_THAT(refusal(with({"--non-persistent-ckpt-type", "in_memory"})), HasSubstr("does not have yet"));
  EXPECT_THAT(notes_block(parse({"--non-persistent-global-ckpt-dir", "y"})),
              HasSubstr("--non-persistent-global-ckpt-dir has no effect without --non-persistent-ckpt-type"));
}

TEST(CheckpointFlags, OfLocalCheckpointsNeedAFolderAndCliquesThatDivideTheRanks) {
  EXPECT_THAT(refusal(with({"--non-persistent-ckpt-type", "local"})),
              HasSubstr("--non-persistent-ckpt-type local needs --non-persistent-local-ckpt-dir"));
  const std::string local = "--non-persistent-ckpt-type local --non-persistent-local-ckpt-dir x ";
  const auto error = [&](const std::string& words) { return refusal(with(words_of(local + words))); };
  EXPECT_THAT(error("--train-iters 8 --phase-transition-iterations 4"),
              HasSubstr("--phase-transition-iterations with --non-persistent-ckpt-type local"));
  EXPECT_THAT(error("--replication"), HasSubstr("--replication needs --replication-jump"));
  EXPECT_THAT(error("--replication --replication-jump 1"),
              HasSubstr("--replication-jump 1 and --replication-factor 2 make groups of 1 * 2 ranks, which do not "
                        "divide 1 rank evenly. Give a jump and a factor whose product divides the number of ranks"));
  const Words fitting = words_of(local + "--replication --replication-jump 2 --replication-factor 2");
  EXPECT_EQ(parse(fitting, 4).checkpoint.replication_jump, 2);
  EXPECT_THAT(
      notes_block(parse(words_of("--replication --replication-factor 3 --non-persistent-local-ckpt-algo atomic"))),
      ::testing::AllOf(HasSubstr("--replication has no effect without --non-persistent-ckpt-type local"),
                       HasSubstr("--replication-factor has no effect without --replication"),
                       HasSubstr("--non-persistent-local-ckpt-algo has no effect without")));
}

}  // namespace
}  // namespace megatron::testing
