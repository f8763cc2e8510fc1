// What a rank has sent, read from its recorder, in forms that tests compare.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megatron/comm/flight_recorder.h"

namespace megatron::testing {

/// Kind and elements of a rank's input.
using Collective = std::pair<CommOp, int64_t>;

/// Operations from number `first` on, in order of issue.
inline std::vector<Collective> collectives_since(const FlightRecorder& recorder, int64_t first) {
  std::vector<Collective> result;
  for (const OperationRecord& record : recorder.since(first)) result.emplace_back(record.op, record.num_elements);
  return result;
}

/// The same as "all_reduce SITE BYTES".
inline std::vector<std::string> operation_lines_since(const FlightRecorder& recorder, int64_t first) {
  std::vector<std::string> lines;
  for (const OperationRecord& record : recorder.since(first))
    lines.push_back(fmt::format("{} {} {}", name_of(record.op), record.site.view(), record.bytes()));
  return lines;
}

}  // namespace megatron::testing
