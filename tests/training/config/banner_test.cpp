#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/training/config/differences.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::parse;

TEST(Banner, HasMegatronsFormat) {
  const std::string block = arguments_block(parse());
  EXPECT_TRUE(block.starts_with("------------------------ arguments ------------------------\n"));
  EXPECT_TRUE(block.ends_with("\n-------------------- end of arguments ---------------------\n"));
  EXPECT_THAT(block, HasSubstr("\n  lr .............................................. 0.001\n"));
  EXPECT_THAT(block, HasSubstr("\n  adam_eps ........................................ 1e-08\n"));
  EXPECT_THAT(block, HasSubstr("\n  cp_comm_type .................................... ['p2p']\n"));
  EXPECT_THAT(block, HasSubstr("\n  swiglu .......................................... False\n"));
  EXPECT_THAT(block, HasSubstr("\n  save ............................................ None\n"));
}

TEST(Banner, NamesWhereThisRunDepartsFromMegatron) {
  EXPECT_THAT(notes_block(parse()), HasSubstr("every valid token of a step weighs equally"));
  EXPECT_THAT(notes_block(parse()), HasSubstr("without --eval-interval there is no evaluation"));
  const std::string notes = notes_block(parse({"--no-calculate-per-token-loss", "--eval-interval", "5"}));
  EXPECT_THAT(notes, HasSubstr("the gradient depends on the layout"));
  EXPECT_THAT(notes, Not(HasSubstr("--eval-interval")));
}

TEST(Banner, NamesFlagsWithoutEffectWithTheReason) {
  const std::string notes =
      notes_block(parse({"--manual-gc", "--no-masked-softmax-fusion", "--transformer-impl", "local"}));
  EXPECT_THAT(notes, HasSubstr("--manual-gc has no effect here: there is no garbage collector"));
  EXPECT_THAT(notes, HasSubstr("--no-masked-softmax-fusion has no effect here"));
  EXPECT_THAT(notes, HasSubstr("--transformer-impl local has no effect here"));
  EXPECT_THAT(notes_block(parse()), Not(HasSubstr("has no effect")));
}

TEST(Banner, NamesSettingsThatNeedAnotherOne) {
  const auto idle = idle_settings(parse({"--rotary-percent", "0.5", "--hysteresis", "4", "--adam-beta1", "0.8"}));
  EXPECT_THAT(idle, ::testing::UnorderedElementsAre(
                        "--rotary-percent has no effect without --position-embedding-type rope or yarn",
                        "--hysteresis has no effect without --fp16 with a dynamic loss scale"));
  EXPECT_THAT(idle_settings(parse()), ::testing::IsEmpty());
}

TEST(Differences, AreAllExplained) {
  for (const Difference& difference : differences()) {
    EXPECT_FALSE(difference.topic.empty());
    EXPECT_FALSE(difference.megatron.empty()) << difference.topic;
    EXPECT_FALSE(difference.ours.empty()) << difference.topic;
  }
}

}  // namespace
}  // namespace megatron
