#include "megatron/comm/threads/meeting.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "megatron/base/error.h"
#include "megatron/comm/reduce.h"

namespace megatron {
namespace {

/// Small enough that waiting ranks share the work of one operation, large enough that claiming costs little.
constexpr int64_t kMeetingPieceBytes = 128 * 1024;

}  // namespace

size_t Meeting::first_entered() const {
  const auto entered = std::find_if(members_.begin(), members_.end(), [](const auto& m) { return m.has_entered; });
  return static_cast<size_t>(entered - members_.begin());
}

std::vector<int> Meeting::missing_ranks() const {
  std::vector<int> ranks;
  for (size_t index = 0; index < members_.size(); ++index)
    if (!members_[index].has_entered) ranks.push_back(ranks_[index]);
  return ranks;
}

std::vector<int> Meeting::waiting_ranks() const {
  std::vector<int> ranks;
  for (size_t index = 0; index < members_.size(); ++index)
    if (members_[index].is_waiting) ranks.push_back(ranks_[index]);
  return ranks;
}

void Meeting::enter(size_t index, MeetingMember member) {
  members_[index] = std::move(member);
  members_[index].has_entered = true;
  if (++num_entered_ < members_.size()) return;
  is_ready_ = true;
  started_ = std::chrono::steady_clock::now();
  if (!find_disagreement().empty()) return;
  plan();
  if (pieces_.empty()) {
    ended_ = started_;
    is_done_ = true;
  }
}

std::string Meeting::find_disagreement() const {
  if (key_.op != CommOp::kAllToAll) return {};
  for (size_t source = 0; source < members_.size(); ++source)
    for (size_t destination = 0; destination < members_.size(); ++destination) {
      const int64_t sent = members_[source].send_counts[destination];
      const int64_t received = members_[destination].receive_counts[source];
      if (sent != received)
        return fmt::format("rank {} sends {} elements to rank {}, which expects {}", ranks_[source], sent,
                           ranks_[destination], received);
    }
  return {};
}

void Meeting::plan() {
  const int64_t bytes = key_.bytes();
  const auto offset = [&](size_t rank) { return static_cast<int64_t>(rank) * bytes; };
  switch (key_.op) {
    case CommOp::kAllReduce:
      return add({kAll, kAll, 0, 0, bytes});
    case CommOp::kReduceScatter:
      for (size_t rank = 0; rank < members_.size(); ++rank) add({kAll, rank, offset(rank), 0, bytes});
      return;
    case CommOp::kAllGather:
      for (size_t to = 0; to < members_.size(); ++to)
        for (size_t from = 0; from < members_.size(); ++from) add({from, to, 0, offset(from), bytes});
      return;
    case CommOp::kAllToAll:
      return plan_all_to_all();
    case CommOp::kBroadcast:
      for (size_t to = 0; to < members_.size(); ++to) add({static_cast<size_t>(key_.root), to, 0, 0, bytes});
      return;
    case CommOp::kBarrier:
      return;
    case CommOp::kSend:
    case CommOp::kReceive:
      return add({0, 1, 0, 0, bytes});
  }
}

void Meeting::plan_all_to_all() {
  const int64_t element = size_of(key_.dtype);
  std::vector<int64_t> received(members_.size());  // bytes so far; sources come in rank order
  for (size_t from = 0; from < members_.size(); ++from) {
    int64_t sent = 0;
    for (size_t to = 0; to < members_.size(); ++to) {
      const int64_t bytes = members_[from].send_counts[to] * element;
      add({from, to, sent, received[to], bytes});
      sent += bytes;
      received[to] += bytes;
    }
  }
}

void Meeting::add(Piece whole) {
  const bool copies = whole.source != kAll;
  if (copies &&
      members_[whole.source].input + whole.input_offset == members_[whole.destination].output + whole.output_offset)
    return;  // in place
  for (int64_t begin = 0; begin < whole.bytes; begin += kMeetingPieceBytes)
    pieces_.push_back({whole.source, whole.destination, whole.input_offset + begin, whole.output_offset + begin,
                       std::min(kMeetingPieceBytes, whole.bytes - begin)});
}

void Meeting::run(const Piece& piece) const {
  if (piece.source != kAll) {
    std::memcpy(members_[piece.destination].output + piece.output_offset,
                members_[piece.source].input + piece.input_offset, static_cast<size_t>(piece.bytes));
    return;
  }
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    inputs.push_back(members_[rank].input + piece.input_offset);
    if (piece.destination == kAll || piece.destination == rank)
      outputs.push_back(members_[rank].output + piece.output_offset);
  }
  reduce_in_rank_order(key_.dtype, key_.reduce, inputs, outputs, piece.bytes / size_of(key_.dtype));
}

void Meeting::run_pieces(const std::atomic<bool>& stop) {
  size_t num_run = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    const size_t piece = next_piece_.fetch_add(1, std::memory_order_relaxed);
    if (piece >= pieces_.size()) break;
    run(pieces_[piece]);
    ++num_run;
  }
  if (num_run > 0 && num_pieces_done_.fetch_add(num_run) + num_run == pieces_.size()) {
    ended_ = std::chrono::steady_clock::now();
    is_done_ = true;
  }
  --num_running_;
}

}  // namespace megatron
