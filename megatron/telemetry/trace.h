// What the ranks of a job did and when, as a picture for ui.perfetto.dev or chrome://tracing.
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

/// Something that took time on one thread of a rank; `ns` of that rank's clock.
struct TraceEvent {
  std::string name;
  int thread = 0;
  int64_t begin_ns = 0, duration_ns = 0;
  std::vector<std::pair<std::string, TraceValue>> args = {};  // shown when it is chosen
};

/// One process of the picture. Events of a thread lie in each other or beside each other.
struct RankTrace {
  int rank = 0;
  std::string name;             // "rank 3: pp 1"
  int64_t clock_offset_ns = 0;  // what to add to its times, so that they are of one clock for all ranks
  std::map<int, std::string> threads;
  std::vector<TraceEvent> events;
  std::vector<std::pair<std::string, int64_t>> totals_ns;  // sums that programs may want; kept beside the picture
};

/// The text of the whole trace. Time 0 is the begin of the first event of all ranks.
std::string to_chrome_json(std::span<const RankTrace> ranks);

/// Writes it, compressed with gzip if the path ends in ".gz". @throw IoError
void write_chrome_trace(FileSystem& files, const std::string& path, std::span<const RankTrace> ranks);

/// Between the processes of a job. @throw IoError if the text is none of to_text.
std::string to_text(const RankTrace& rank);
RankTrace rank_trace_from_text(const std::string& text);

}  // namespace megatron
