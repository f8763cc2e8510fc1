// A process group whose members are processes: this rank's operations in flight.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/mpi/mpi_operation.h"

namespace megatron {

using MpiOperationPtr = std::shared_ptr<MpiOperation>;

/// Collectives run one after the other, in the order of the calls, as a later one may read results of an earlier one.
/// Handshakes of a channel run one after the other, which keeps the order of sends. Not thread-safe: the hub guards it.
class MpiGroup {
 public:
  MpiGroup(std::string_view name, std::vector<int> ranks, int own, int split);

  const MpiGroupFacts& facts() const { return facts_; }
  void add(MpiOperationPtr operation);
  void add_message(int peer, int tag, CommOp op, MpiOperationPtr message);

  /// Advances operations as far as possible without waiting. @throw CommError if ranks disagree
  void advance(const MpiTransport& transport);
  bool is_idle() const { return collectives_.empty() && channels_.empty(); }
  /// An operation that waits for `rank`, or null.
  const MpiOperation* find_waiting_for(int rank) const;

 private:
  struct Channel {
    int peer, tag;
    CommOp op;
    auto operator<=>(const Channel&) const = default;
  };
  MpiGroupFacts facts_;
  std::deque<MpiOperationPtr> collectives_;
  std::map<Channel, std::deque<MpiOperationPtr>> channels_;
};

}  // namespace megatron
