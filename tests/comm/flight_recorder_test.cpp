#include "megatron/comm/flight_recorder.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

OperationRecord numbered(int64_t sequence) {
  OperationRecord record;
  record.group = "tp";
  record.op = CommOp::kAllReduce;
  record.sequence = sequence;
  record.site = Site("grad bucket 7");
  return record;
}

TEST(FlightRecorder, KeepsTheNewestRecords) {
  FlightRecorder recorder(4);
  EXPECT_FALSE(recorder.last().has_value());
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(recorder.add(numbered(i)), i);
  EXPECT_EQ(recorder.num_operations(), 10);
  EXPECT_EQ(recorder.last()->sequence, 9);
  const auto kept = recorder.since(0);
  ASSERT_EQ(kept.size(), 4u);
  EXPECT_EQ(kept.front().sequence, 6);
  EXPECT_EQ(recorder.since(8).size(), 2u);
  EXPECT_TRUE(recorder.since(10).empty());
}

TEST(FlightRecorder, IgnoresTimesOfOverwrittenRecords) {
  FlightRecorder recorder(2);
  for (int64_t i = 0; i < 3; ++i) recorder.add(numbered(i));
  const auto now = std::chrono::steady_clock::now();
  recorder.ended(0, now, now);
  recorder.ended(2, now, now);
  recorder.waited(1, now);
  const auto kept = recorder.since(0);
  EXPECT_FALSE(kept[0].has_ended());
  EXPECT_TRUE(kept[0].has_waited());
  EXPECT_TRUE(kept[1].has_ended());
}

TEST(OperationRecord, HasTheNameOfAllMessages) {
  EXPECT_EQ(numbered(12).to_string(), "all_reduce #12 \"grad bucket 7\" of tp");
  EXPECT_EQ(describe(CommOp::kReceive, 0, "", "pp"), "recv #0 of pp");
}

TEST(Site, KeepsTheFirst47Characters) {
  const std::string text(60, 'x');
  EXPECT_EQ(Site(text).view(), text.substr(0, 47));
  EXPECT_EQ(Site().view(), "");
}

}  // namespace
}  // namespace megatron
