// Collectives over the ranks of one group.
#pragma once

#include <chrono>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/comm/group_traits.h"
#include "megatron/comm/operation.h"
#include "megatron/comm/work.h"

namespace megatron {

class FlightRecorder;
struct ProcessGroupState;

struct CommOptions {
  std::string_view site;  // where in the program: "grad bucket 7"; 47 characters are kept
  KeepAlive keep_alive = {};
};

/// Handle on a group of ranks; cheap to copy, valid as long as the World that made it. A default one is the group of
/// one rank that belongs to no world: every collective is a no-op or a copy in host memory.
///
/// All ranks of a group issue the same collectives in the same order, each rank from one thread. Operations are
/// asynchronous; their buffers must not be used before Work::wait(). Collectives of one group take effect in the order
/// of issue, so one may read what the one before it wrote without a wait between. Nothing orders different groups.
///
/// Views must be contiguous, a bounded one moves its whole capacity. Data of ranks lie one after the other in group
/// rank order, so gather and scatter act on dimension 0.
/// @throw ShapeError, DtypeError, ConfigError for wrong arguments; CommError from here or from Work::wait() when a rank
/// did not come within timeout(), was lost or aborted, or (threads backend) called another operation.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  explicit ProcessGroup(ProcessGroupState& state) : state_(&state) {}

  int size() const;
  /// Own place in the group, from 0.
  int rank() const;
  std::string_view name() const;
  GroupTraits traits() const;
  /// Records this rank's operations on all groups of its world; null for the default group.
  const FlightRecorder* recorder() const;
  /// Global rank of a member.
  int global_rank(int group_rank) const;
  std::chrono::milliseconds timeout() const;
  void set_timeout(std::chrono::milliseconds timeout) const;

  /// buffer = reduction of all ranks' buffers, element by element; the same bits on every rank.
  /// On the CPU sums are formed in rank order in fp32 (fp64 for fp64, integers exactly) and rounded once.
  Work all_reduce(View buffer, ReduceOp reduce, CommOptions options) const;

  /// output = this rank's section of the reduction of all inputs. @param input size() times as many elements as
  /// `output`; `output` may be this rank's section of it.
  Work reduce_scatter(ConstView input, View output, ReduceOp reduce, CommOptions options) const;

  /// output = the inputs of all ranks. @param output size() times as many elements as `input`, which may be this rank's
  /// section of it.
  Work all_gather(ConstView input, View output, CommOptions options) const;

  /// Section k of `input` goes to rank k; section k of `output` comes from it. Equal sections.
  Work all_to_all(ConstView input, View output, CommOptions options) const;
  /// With send_rows[k] rows of dimension 0 for rank k and receive_rows[k] from it; they add up to dimension 0 of
  /// `input` and `output`, whose other dimensions agree.
  Work all_to_all(ConstView input, View output, std::span<const int64_t> send_rows,
                  std::span<const int64_t> receive_rows, CommOptions options) const;

  /// buffer = that of group rank `root`.
  Work broadcast(View buffer, int root, CommOptions options) const;

  /// Done when all ranks have entered.
  Work barrier(CommOptions options) const;

  /// Messages are a rendezvous: a send is done when the receiver has the data, so post both directions of an exchange
  /// before waiting for either. Between two ranks messages of one tag arrive in the order of sending; tags are
  /// independent channels and should be few, for a backend may need a communicator for each. The peer is another rank.
  Work send(ConstView input, int peer, int tag, CommOptions options) const;
  Work recv(View output, int peer, int tag, CommOptions options) const;
  /// Several messages under one Work, in any order and direction.
  Work batch(std::span<const PointToPoint> messages, CommOptions options) const;

  /// Makes every rank of the group that waits in it, or calls it later, throw CommError. Any thread, any time.
  void abort(std::string_view reason) const;

 private:
  ProcessGroupState* state_ = nullptr;
};

}  // namespace megatron
