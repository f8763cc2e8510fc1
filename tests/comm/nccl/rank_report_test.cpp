// The rank that blocks the others, from the reports of ranks.
#include "megatron/comm/nccl/rank_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

RankReport waiting(int rank, const std::string& text, const LanePlace& place,
                   const std::map<std::string, int64_t>& num_issued) {
  return {rank, text, place, num_issued};
}

TEST(RankReport, IsRestoredFromItsText) {
  const RankReport before =
      waiting(3, "send #7 \"a b\" of pp", {"messages.2.0.3.1", 7, {0, 3}}, {{"group.0.0", 4}, {"x", 0}});
  const RankReport after = RankReport::parse(before.serialize());
  EXPECT_EQ(after.rank, 3);
  EXPECT_EQ(after.text, before.text);
  ASSERT_TRUE(after.blocked);
  EXPECT_EQ(after.blocked->lane, "messages.2.0.3.1");
  EXPECT_EQ(after.blocked->index, 7);
  EXPECT_THAT(after.blocked->members, ElementsAre(0, 3));
  EXPECT_EQ(after.num_issued, before.num_issued);
  const RankReport idle = RankReport::parse(RankReport{2, " Rank 2 waits\nin no operation", {}, {}}.serialize());
  EXPECT_FALSE(idle.blocked);
  EXPECT_EQ(idle.text, " Rank 2 waits in no operation");
  EXPECT_THROW(RankReport::parse("nonsense"), CommError);
  EXPECT_THROW(RankReport::parse("1\ntext\nmoved x 3"), CommError);
}

TEST(RankReport, RanksThatHaveNotIssuedAnOperationAreMissing) {
  const LanePlace place{"group.0.0", 5, {0, 1, 2, 3}};
  const std::map<int, RankReport> reports{
      {0, {0, "", {}, {{"group.0.0", 6}}}}, {1, {1, "", {}, {{"group.0.0", 5}}}}, {2, {2, "", {}, {{"group.1.0", 9}}}}};
  EXPECT_THAT(missing_ranks(place, reports), ElementsAre(1, 2, 3));
}

TEST(RankReport, TheChainIsFollowedToTheRankThatBlocksAll) {
  const LanePlace tp{"group.0.0", 2, {0, 1}}, dp{"group.1.1", 0, {1, 3}};
  const std::map<int, RankReport> reports{
      {0, waiting(0, "barrier #2 of tp", tp, {{"group.0.0", 3}})},
      {1, waiting(1, "all_reduce #0 of dp", dp, {{"group.0.0", 2}, {"group.1.1", 1}})},
      {3, {3, " Rank 3 waits in no operation.", {}, {{"group.1.1", 0}}}}};
  EXPECT_EQ(explain_timeout(0, milliseconds(500), reports),
            "barrier #2 of tp timed out after 500 ms: rank 1 never entered it; rank 0 waiting. Rank 1 waits in "
            "all_reduce #0 of dp for rank 3. Rank 3 waits in no operation.");
}

TEST(RankReport, ARankThatDoesNotAnswerIsNamed) {
  const LanePlace place{"group.0.0", 0, {0, 1}};
  EXPECT_THAT(explain_timeout(0, milliseconds(500), {{0, waiting(0, "x", place, {{"group.0.0", 1}})}}),
              HasSubstr("Rank 1 does not answer: its process hangs or is lost."));
}

TEST(RankReport, AnOperationThatAllHaveEnteredBlamesTheLinkAndNamesTheWaitingRanks) {
  const LanePlace place{"group.0.0", 0, {0, 1}};
  EXPECT_EQ(explain_timeout(0, milliseconds(500),
                            {{0, waiting(0, "x", place, {{"group.0.0", 1}})}, {1, {1, "", {}, {{"group.0.0", 1}}}}}),
            "x timed out after 500 ms although ranks 0, 1 have entered it; rank 0 waiting: the link between them, or a "
            "GPU, hangs.");
}

TEST(RankReport, ALaunchByAllRanksAdvisesARunWithoutGraphs) {
  const std::string lane(kGraphLaunches);
  const LanePlace place{lane, 7, {0, 1}};
  EXPECT_EQ(
      explain_timeout(
          1, milliseconds(500),
          {{0, waiting(0, "launch #7", place, {{lane, 8}})}, {1, waiting(1, "launch #7", place, {{lane, 8}})}}),
      "launch #7 timed out after 500 ms although ranks 0, 1 have entered it; ranks 0, 1 waiting: the link between "
      "them, or a GPU, hangs. Run without --cuda-graph-impl to find which operation of the graph hangs.");
}

TEST(RankReport, AChangeOnSomeRanksOnlyNamesAll) {
  EXPECT_THAT(
      explain_change("the change of graph step #6 \"iteration 7\"", 1, "3 blocks are in use, and were 2", {0, 2}),
      ::testing::AllOf(HasSubstr("graph step #6 \"iteration 7\" is on rank 1 only: 3 blocks are in use"),
                       HasSubstr("ranks 0, 2 may launch one")));
}

TEST(ExplainTimeout, DescribesTheFirstFewOfManyRanks) {
  BlockedOperation blocked{"barrier #0 of world", {0}, {}};
  for (int rank = 1; rank < 128; ++rank) blocked.missing.push_back(rank);
  EXPECT_EQ(explain_timeout(blocked, milliseconds(500), {blocked}, [](int rank) { return fmt::format(" {}.", rank); }),
            "barrier #0 of world timed out after 500 ms: 127 ranks (1-127) never entered it; rank 0 waiting. 1. 2. 3. "
            "4. 5. 6. 7. 8. 119 more ranks are not described.");
}

}  // namespace
}  // namespace megatron
