// The operations of a rank, read from its recorder, in forms that tests compare.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "megatron/comm/flight_recorder.h"
#include "megatron/core/dtype.h"

namespace megatron::testing {

/// Kind, and elements of a rank's input.
struct Collective {
  CommOp op = CommOp::kBarrier;
  int64_t num_elements = 0;
  DType dtype = DType::kFloat32;
  bool operator==(const Collective&) const = default;
  friend void PrintTo(const Collective& call, std::ostream* out) {
    *out << fmt::format("{} {} {}", name_of(call.op), call.num_elements, name_of(call.dtype));
  }
};

/// Operations from number `first` on, in order of issue.
inline std::vector<Collective> collectives_since(const FlightRecorder& recorder, int64_t first) {
  std::vector<Collective> result;
  for (const OperationRecord& record : recorder.since(first))
    result.push_back({record.op, record.num_elements, record.dtype});
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
