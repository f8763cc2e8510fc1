#include "megatron/training/profile/rank_trace_builder.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace megatron {
namespace {

using std::chrono::nanoseconds;

/// The host launches it at `launched`; the device is at it from `begin` to `end`.
OpRecord op(int64_t launched, int64_t begin, int64_t end) {
  return {.name = "linear", .place = {}, .shape = {}, .host = {launched, launched + 1}, .device = {begin, end}};
}

/// One that the host waits for at `waited` and that is seen to end at `ended`.
OperationRecord exchange(int64_t waited, int64_t ended) {
  OperationRecord record{.group = "tp", .op = CommOp::kAllGather, .site = Site("x")};
  record.waited = OperationRecord::Time(nanoseconds(waited));
  record.started = record.ended = OperationRecord::Time(nanoseconds(ended));
  return record;
}

int64_t total(const RankTrace& trace, std::string_view name) {
  return std::ranges::find(trace.totals_ns, name, [](const auto& entry) { return entry.first; })->second;
}

TEST(RankTraceBuilder, ADeviceCommunicatesInTheGapWhereItsStreamWaits) {
  RankTraceBuilder builder(0, "rank 0", true);
  ProfileRecorder::Records records;
  records.ranges = {{.note = {"step"}, .host = {0, 1000}}};
  records.ops = {op(1, 100, 200), op(10, 250, 300), op(20, 330, 400), op(30, 400, 900)};
  builder.add(1, records);
  builder.add(exchange(15, 5000));  // between the second op and the third, however late its end was seen
  builder.add(exchange(16, 5000));
  builder.add(exchange(25, 5000));  // hidden
  const RankTrace trace = builder.finish();
  EXPECT_EQ(total(trace, "communication"), 30);
  EXPECT_EQ(total(trace, "host gaps"), 100 + 50 + 100);
  const auto wait = std::ranges::find(trace.events, "wait all_gather x", &TraceEvent::name);
  ASSERT_NE(wait, trace.events.end());
  EXPECT_EQ(wait->begin_ns, 300);
  EXPECT_EQ(wait->duration_ns, 30);
}

}  // namespace
}  // namespace megatron
