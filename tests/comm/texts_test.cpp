#include "megatron/comm/texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/rank_threads.h"

namespace megatron {
namespace {

TEST(Texts, AreTheSameOnEveryRank) {
  const std::vector<std::string> texts = {"", std::string("a\0b\xff", 4), std::string(10007, 'x')};
  testing::run_ranks(3, [&](testing::RankContext& rank) {
    const std::string& own = texts[static_cast<size_t>(rank.rank)];
    EXPECT_EQ(gather_texts(rank.group, own, "test"), texts);
    for (int root = 0; root < 3; ++root)
      EXPECT_EQ(broadcast_text(rank.group, own, root, "test"), texts[static_cast<size_t>(root)]);
    EXPECT_THAT(gather_texts(rank.group, "", "test"), ::testing::Each(""));
  });
}

TEST(Texts, AreTheOwnOnesForOneRank) {
  EXPECT_EQ(broadcast_text({}, "alone", 0, "test"), "alone");
  EXPECT_THAT(gather_texts({}, "alone", "test"), ::testing::ElementsAre("alone"));
}

TEST(Texts, ValuesOfRanksAppearOnceInTheOrderOfTheirFirstRank) {
  EXPECT_EQ(describe_values({"b", "a", "b", "b", "c"}), "b on ranks 0, 2, 3, a on rank 1, c on rank 4");
  EXPECT_EQ(describe_values({"7"}), "7 on rank 0");
}

TEST(Texts, LinesOfRanksAppearOnceWithTheirRanks) {
  EXPECT_EQ(describe_lines({"b\na", "a\nc", "a\nb"}), "a\nb (ranks 0, 2)\nc (rank 1)");
  EXPECT_EQ(describe_lines({"a", ""}), "a (rank 0)");
  EXPECT_EQ(describe_lines({"", ""}), "");
}

}  // namespace
}  // namespace megatron
