// Vocabulary of the communication layer: kinds of operations, reductions, and the identity of an operation.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/core/view.h"

namespace megatron {

enum class CommOp : uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kBarrier,
  kSend,
  kReceive
};
/// "all_reduce", "recv" ...: the names of ProcessGroup's functions.
std::string_view name_of(CommOp op);

/// kAverage is the sum divided by the number of ranks, and rejected for integers. kMax and kMin give NaN if any rank
/// has one.
enum class ReduceOp : uint8_t { kSum, kMax, kMin, kAverage };
std::string_view name_of(ReduceOp reduce);

/// Lists of global ranks: the groups of one kind, each rank in at most one of them.
using RankLists = std::vector<std::vector<int>>;

/// The place in the program that issued an operation ("grad bucket 7"): at most 47 characters, without allocation.
class Site {
 public:
  Site() = default;
  explicit Site(std::string_view text) : length_(static_cast<uint8_t>(std::min(text.size(), text_.size()))) {
    std::copy_n(text.begin(), length_, text_.begin());
  }
  std::string_view view() const { return {text_.data(), length_}; }

 private:
  std::array<char, 47> text_;
  uint8_t length_ = 0;
};

/// A send or a receive between two ranks of a group; made by send_to() and receive_from().
struct PointToPoint {
  CommOp op = CommOp::kSend;
  ConstView input;  // of a send
  View output;      // of a receive
  int peer = 0;     // rank in the group
  int tag = 0;
};
inline PointToPoint send_to(int peer, ConstView input, int tag) { return {CommOp::kSend, input, {}, peer, tag}; }
inline PointToPoint receive_from(int peer, View output, int tag) { return {CommOp::kReceive, {}, output, peer, tag}; }

class FlightRecorder;

/// The properties of an operation, besides its operands, that a backend gets.
struct OperationInfo {
  CommOp op = CommOp::kBarrier;
  int64_t sequence = 0;  // among the collectives, or among the sends and receives, that this rank issued on the group
  Site site;
  std::chrono::milliseconds timeout{0};
  FlightRecorder* recorder = nullptr;  // the backend reports wait, start and end of `record`
  int64_t record = 0;
};

/// `all_reduce #12 "grad bucket 7" of tp`, the name of an operation in all messages.
std::string describe(CommOp op, int64_t sequence, std::string_view site, std::string_view group);
/// "rank 3", "ranks 0, 1, 2"; more than 8 as ranges: "115 ranks (0-12, 26-127)", of which at most 8 are named.
std::string describe_ranks(const std::vector<int>& ranks);

}  // namespace megatron
