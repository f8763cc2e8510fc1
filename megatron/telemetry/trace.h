// A trace of all ranks of a job, for ui.perfetto.dev or chrome://tracing.
// Source: "Trace Event Format" of Chromium's catapult project, JSON object format.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron {

using TraceValue = std::variant<int64_t, std::string>;

/// An interval on one thread of a rank, in ns of that rank's clock.
struct TraceEvent {
  std::string name;
  int thread = 0;
  int64_t begin_ns = 0, duration_ns = 0;
  std::vector<std::pair<std::string, TraceValue>> args = {};  // shown when it is chosen
};

/// One process of the trace. Events of a thread are nested or disjoint.
struct RankTrace {
  int rank = 0;
  std::string name;             // "rank 3: pp 1"
  int64_t clock_offset_ns = 0;  // added to its times, so that all ranks have the same clock
  std::map<int, std::string> threads;
  std::vector<TraceEvent> events;
  std::vector<std::pair<std::string, int64_t>> totals_ns;  // sums for programs, written to otherData
};

/// The text of the whole trace. Time 0 is the begin of the first event of all ranks.
std::string to_chrome_json(std::span<const RankTrace> ranks);

/// Writes it, compressed with gzip if the path ends in ".gz". @throw IoError
void write_chrome_trace(FileSystem& files, const std::string& path, std::span<const RankTrace> ranks);

/// Sends a trace between processes of a job. @throw IoError if the text is not one of to_text.
std::string to_text(const RankTrace& rank);
RankTrace rank_trace_from_text(const std::string& text);

}  // namespace megatron
