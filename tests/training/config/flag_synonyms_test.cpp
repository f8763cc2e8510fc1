#include "megatron/training/config/flag_synonyms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "megatron/training/config/fields.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::refusal;
using testing::with;

TEST(FlagSynonyms, LeadToFlagsThatAreAcceptedAndNeverToRejectedOnes) {
  PretrainConfig config;
  const FieldTable table = describe(config);
  for (const FlagSynonym& synonym : flag_synonyms())
    for (const std::string_view flag : words_in(synonym.flags)) {
      ASSERT_NE(table.find_flag(flag), nullptr) << flag;
      EXPECT_EQ(table.find_flag(flag)->not_yet, "") << flag;
    }
}

TEST(FlagSynonyms, StandOnceInAFieldAndAreNoFlagsOfPretrainGpt) {
  PretrainConfig config;
  const FieldTable table = describe(config);
  table.for_each([&](const Field& field) {
    std::set<std::string_view> seen;
    for (const FieldSynonyms& synonyms : field.synonyms)
      for (const std::string_view name : words_in(synonyms.names)) {
        EXPECT_TRUE(seen.insert(name).second) << field.name << " " << name;
        EXPECT_EQ(table.find_flag(fmt::format("--{}", name)), nullptr) << name;
      }
  });
}

TEST(FlagSynonyms, AreSuggestedForWhatNewUsersWrite) {
  const auto suggests = [](const char* flag, const char* text) {
    EXPECT_THAT(refusal(with({flag, "2"})), HasSubstr(fmt::format("{}: there is no such flag{}", flag, text)));
  };
  suggests("--tp", "; did you mean --tensor-model-parallel-size?");
  suggests("--pp", "; did you mean --pipeline-model-parallel-size?");
  suggests("--dp", "; did you mean --nproc-per-node? (data parallelism has the ranks");
  suggests("--cp", "; did you mean --context-parallel-size?");
  suggests("--ep", "; did you mean --expert-model-parallel-size?");
  suggests("--fsdp",
           "; did you mean --use-distributed-optimizer? (the state of the optimizer is cut, not the weights)");
  suggests("--ctx", "; did you mean --seq-length?");
  suggests("--moe-top-k", "; did you mean --moe-router-topk?");
  suggests("--wandb", "; did you mean --wandb-project?");
  suggests("--fp32", "; did you mean --bf16 or --fp16? (without either, weights are fp32)");
  suggests("--batch", "; did you mean --micro-batch-size or --global-batch-size? (the sequences of one pass, and");
  suggests("--learning-rate", "; did you mean --lr?");
  suggests("--num-epochs", "; did you mean --train-iters or --train-samples?");
  suggests("--epochs", "; did you mean --train-iters or --train-samples?");
  suggests("--hidden-dim", "; did you mean --hidden-size?");
  suggests("--n-layers", "; did you mean --num-layers?");
  suggests("--n_heads", "; did you mean --num-attention-heads?");
  suggests("--seq-len", "; did you mean --seq-length?");
  EXPECT_THAT(refusal(with({"--batch-size", "2"})), HasSubstr("--micro-batch-size, the sequences of one pass, and"));
}

}  // namespace
}  // namespace megatron
