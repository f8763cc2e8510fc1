#include "megatron/telemetry/trace.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Json = nlohmann::ordered_json;

Json args_of(const TraceEvent& event) {
  Json args = Json::object();
  for (const auto& arg : event.args) std::visit([&](const auto& value) { args[arg.first] = value; }, arg.second);
  return args;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// Microseconds with three decimals: exact, and short.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

void append_metadata(std::string& text, int rank, int thread, std::string_view kind, const Json& args) {
  text += fmt::format("{{\"ph\":\"M\",\"pid\":{},\"tid\":{},\"name\":\"{}\",\"args\":{}}},\n", rank, thread, kind,
                      dump(args));
}

void append_rank(std::string& text, const RankTrace& rank, int64_t origin_ns) {
  append_metadata(text, rank.rank, 0, "process_name", {{"name", rank.name}});
  append_metadata(text, rank.rank, 0, "process_sort_index", {{"sort_index", rank.rank}});
  for (const auto& [thread, name] : rank.threads) {
    append_metadata(text, rank.rank, thread, "thread_name", {{"name", name}});
    append_metadata(text, rank.rank, thread, "thread_sort_index", {{"sort_index", thread}});
  }
  for (const TraceEvent& event : rank.events) {
    text += fmt::format("{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"name\":{}", rank.rank,
                        event.thread, microseconds(event.begin_ns + rank.clock_offset_ns - origin_ns),
                        microseconds(event.duration_ns), dump(event.name));
    if (!event.args.empty()) text += ",\"args\":" + dump(args_of(event));
    text += "},\n";
  }
}

Json totals_of(std::span<const RankTrace> ranks) {
  Json all = Json::object();
  for (const RankTrace& rank : ranks) {
    Json& own = all[fmt::format("rank {}, ns", rank.rank)] = Json::object();
    for (const auto& [name, ns] : rank.totals_ns) own[name] = ns;
  }
  return all;
}

std::string gzip(std::string_view text) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16, kMemoryLevel = 8;  // zlib.h: a window of 32 KiB, with gzip's header
  require<IoError>(deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK,
                   "[trace] zlib cannot be initialised.");
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  std::string in(text);
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int status = deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  require<IoError>(status == Z_STREAM_END, "[trace] zlib returned {} for {} bytes.", status, text.size());
  return out;
}

}  // namespace

std::string to_chrome_json(std::span<const RankTrace> ranks) {
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (const RankTrace& rank : ranks)
    for (const TraceEvent& event : rank.events) origin = std::min(origin, event.begin_ns + rank.clock_offset_ns);
  std::string text = "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + dump(totals_of(ranks)) + ",\n\"traceEvents\":[\n";
  for (const RankTrace& rank : ranks) append_rank(text, rank, origin);
  if (text.ends_with(",\n")) text.resize(text.size() - 2);
  return text + "\n]}\n";
}

void write_chrome_trace(FileSystem& files, const std::string& path, std::span<const RankTrace> ranks) {
  const std::string text = to_chrome_json(ranks);
  replace_file(files, path, path.ends_with(".gz") ? gzip(text) : text);
}

std::string to_text(const RankTrace& rank) {
  Json json{{"rank", rank.rank},       {"name", rank.name},        {"clock_offset_ns", rank.clock_offset_ns},
            {"threads", rank.threads}, {"totals", rank.totals_ns}, {"events", Json::array()}};
  for (const TraceEvent& event : rank.events)
    json["events"].push_back({event.name, event.thread, event.begin_ns, event.duration_ns, args_of(event)});
  return dump(json);
}

RankTrace rank_trace_from_text(const std::string& text) try {
  const Json json = Json::parse(text);
  RankTrace rank{.rank = json.at("rank"),
                 .name = json.at("name"),
                 .clock_offset_ns = json.at("clock_offset_ns"),
                 .threads = json.at("threads").get<std::map<int, std::string>>(),
                 .events = {},
                 .totals_ns = json.at("totals").get<std::vector<std::pair<std::string, int64_t>>>()};
  for (const Json& item : json.at("events")) {
    TraceEvent& event = rank.events.emplace_back();
    event = {.name = item.at(0), .thread = item.at(1), .begin_ns = item.at(2), .duration_ns = item.at(3)};
    for (const auto& [name, value] : item.at(4).items()) {
      if (value.is_string())
        event.args.emplace_back(name, value.get<std::string>());
      else
        event.args.emplace_back(name, value.get<int64_t>());
    }
  }
  return rank;
} catch (const nlohmann::json::exception& error) {
  throw IoError(fmt::format("[trace] the part of a rank cannot be read: {}", error.what()));
}

}  // namespace megatron
