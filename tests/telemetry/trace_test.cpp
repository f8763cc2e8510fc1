#include "megatron/telemetry/trace.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/host_memory_files.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

/// Rank 1 of a host whose clock is 100 ns ahead of what all agree on.
std::vector<RankTrace> two_ranks() {
  const TraceEvent linear{.name = "linear \"fc1\"\n",
                          .thread = 1,
                          .begin_ns = 7'000'123,
                          .duration_ns = 1'500,
                          .args = {{"shape", "[3, 5]"}, {"bytes", int64_t{60}}}};
  return {{.rank = 0,
           .name = "rank 0: pp 0",
           .clock_offset_ns = 0,
           .threads = {{0, "host"}, {1, "compute"}},
           .events = {linear},
           .totals_ns = {{"matrix products", 1'500}}},
          {.rank = 1,
           .name = "rank 1: pp 1",
           .clock_offset_ns = -100,
           .threads = {{0, "host"}},
           .events = {{.name = "step 3", .begin_ns = 7'000'224, .duration_ns = 0}},
           .totals_ns = {{"matrix products", 0}}}};
}

std::string gunzip(const std::string& compressed) {
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  std::string in = compressed, out(1 << 16, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST(Trace, IsJsonWithAProcessForEachRankAndAThreadForEachRow) {
  const Json json = Json::parse(to_chrome_json(two_ranks()));
  std::map<std::pair<int, int>, std::string> threads;
  std::map<int, std::string> processes;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{0, "rank 0: pp 0"}, {1, "rank 1: pp 1"}}));
  EXPECT_EQ(threads,
            (std::map<std::pair<int, int>, std::string>{{{0, 0}, "host"}, {{0, 1}, "compute"}, {{1, 0}, "host"}}));
  EXPECT_EQ(json.at("otherData").at("rank 0, ns").at("matrix products"), 1500);
}

TEST(Trace, BeginsAtZeroOnTheClockOfAllRanksAndKeepsNanoseconds) {
  const std::string text = to_chrome_json(two_ranks());
  EXPECT_NE(text.find("\"tid\":1,\"ts\":0.000,\"dur\":1.500"), std::string::npos) << text;
  EXPECT_NE(text.find("\"tid\":0,\"ts\":0.001,\"dur\":0.000"), std::string::npos) << text;
}

TEST(Trace, KeepsNamesAndArgumentsThatJsonMustEscape) {
  const Json json = Json::parse(to_chrome_json(two_ranks()));
  for (const Json& event : json.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("pid") == 0) {
      EXPECT_EQ(event.at("name"), "linear \"fc1\"\n");
      EXPECT_EQ(event.at("args").dump(), R"({"bytes":60,"shape":"[3, 5]"})");
    }
}

TEST(Trace, IsValidWithoutEvents) { EXPECT_TRUE(Json::parse(to_chrome_json({})).at("traceEvents").empty()); }

TEST(Trace, ThePartOfARankIsRestoredFromItsText) {
  const std::vector<RankTrace> ranks = two_ranks();
  std::vector<RankTrace> copies;
  for (const RankTrace& rank : ranks) copies.push_back(rank_trace_from_text(to_text(rank)));
  EXPECT_EQ(to_chrome_json(copies), to_chrome_json(ranks));
  EXPECT_THROW(rank_trace_from_text("{\"rank\":1"), IoError);
  EXPECT_THROW(rank_trace_from_text("{\"rank\":1}"), IoError);
}

TEST(Trace, IsCompressedIfTheNameEndsInGz) {
  HostMemoryFiles files;
  write_chrome_trace(files, "trace.json", two_ranks());
  write_chrome_trace(files, "trace.json.gz", two_ranks());
  EXPECT_EQ(read_file(files, "trace.json"), to_chrome_json(two_ranks()));
  EXPECT_EQ(gunzip(read_file(files, "trace.json.gz")), to_chrome_json(two_ranks()));
}

}  // namespace
}  // namespace megatron
