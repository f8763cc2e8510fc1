#include "megatron/training/config/flag_synonyms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "megatron/training/config/fields.h"
#include "megatron/training/config/refused_flags.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::refusal;
using testing::with;

std::set<std::string, std::less<>> accepted_flags() {
  PretrainConfig config;
  std::set<std::string, std::less<>> flags = {
      "--num-micro-batches", "--num-tokens", "--input",      "--output-prefix",
      "--workers",           "--prompt",     "--temperature"};  // other commands'
  describe(config).for_each([&](const Field& field) {
    flags.insert(field.flags.begin(), field.flags.end());
    flags.insert(field.off_flags.begin(), field.off_flags.end());
    flags.insert(field.aliases.begin(), field.aliases.end());
  });
  return flags;
}

TEST(FlagSynonyms, LeadToFlagsThatAreAcceptedAndNeverToRejectedOnes) {
  const auto accepted = accepted_flags();
  const RefusedFlags refused = refused_flags();
  for (const FlagSynonym& synonym : flag_synonyms())
    for (const std::string_view flag : words_in(synonym.flags)) {
      EXPECT_TRUE(accepted.contains(flag)) << flag;
      EXPECT_FALSE(refused.contains(flag)) << flag;
    }
}

TEST(FlagSynonyms, StandOnceEachAndAreNoFlagsOfPretrainGpt) {
  PretrainConfig config;
  FieldTable table = describe(config);
  std::set<std::string_view> seen;
  for (const FlagSynonym& synonym : flag_synonyms())
    for (const std::string_view name : words_in(synonym.names)) {
      EXPECT_TRUE(seen.insert(name).second) << name;
      table.for_each([&](const Field& field) {
        for (const auto* flags : {&field.flags, &field.aliases})
          for (const std::string& flag : *flags) EXPECT_NE(flag, fmt::format("--{}", name));
      });
    }
}

TEST(FlagSynonyms, AreSuggestedForWhatNewUsersWrite) {
  const auto suggests = [](const char* flag, const char* text) {
    EXPECT_THAT(refusal(with({flag, "2"})), HasSubstr(fmt::format("{}: there is no such flag{}", flag, text)));
  };
  suggests("--tp", "; did you mean --tensor-model-parallel-size?");
  suggests("--pp", "; did you mean --pipeline-model-parallel-size?");
  suggests("--dp", "; did you mean --nproc-per-node? (data parallelism has the ranks");
  suggests("--cp", " (context parallelism is not supported yet)");
  suggests("--ep", " (mixtures of experts are not supported yet)");
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
