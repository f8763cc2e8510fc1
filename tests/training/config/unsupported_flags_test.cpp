#include "megatron/training/config/unsupported_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

TEST(UnsupportedFlags, AreReadWithReasonsOtherSpellingsAndMarks) {
  const auto groups = parse_unsupported_flags(
      "# a comment\n\nnot yet: experts\n  --num-experts (model)\n  --experts = --num-experts\ninstead: give --b\n  "
      "--a\n");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_TRUE(groups[0].is_not_yet);
  EXPECT_EQ(groups[0].reason, "experts");
  ASSERT_EQ(groups[0].flags.size(), 2u);
  EXPECT_TRUE(groups[0].flags[0].changes_the_model);
  EXPECT_EQ(groups[0].flags[1].flag, "--experts");
  EXPECT_EQ(groups[0].flags[1].spelling_of, "--num-experts");
  EXPECT_FALSE(groups[1].is_not_yet);
  EXPECT_EQ(groups[1].reason, "give --b");
  EXPECT_EQ(groups[1].flags[0].flag, "--a");
}

TEST(UnsupportedFlags, OfAnotherFormAreAnErrorThatNamesTheLine) {
  for (const char* line : {"  --a", "later: x", "not yet: x\n--a", "not yet: x\n  a", "not yet: x\n  --a (what)",
                           "not yet: x\n  --a = b", "not yet: x\n  "})
    try {
      parse_unsupported_flags(line);
      ADD_FAILURE() << line << " was read";
    } catch (const InternalError& error) {
      EXPECT_THAT(error.what(), HasSubstr("unsupported_flags.txt: '"));
    }
}

TEST(UnsupportedFlags, StandOnceAreNoFlagsHereAndHaveAReason) {
  EXPECT_GT(refused_flags().size(), 100u);  // throws if one stands twice
  PretrainConfig config;
  const FieldTable table = describe(config);
  for (const UnsupportedFlags& group : unsupported_flags()) {
    EXPECT_FALSE(group.reason.empty());
    EXPECT_FALSE(group.flags.empty()) << group.reason;
    for (const UnsupportedFlag& flag : group.flags) {
      EXPECT_EQ(table.find_flag(flag.flag), nullptr) << flag.flag << " is supported";
      EXPECT_TRUE(flag.spelling_of.empty() || refused_flags().contains(flag.spelling_of)) << flag.flag;
    }
  }
}

}  // namespace
}  // namespace megatron
