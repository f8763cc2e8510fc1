// Control of a GPU rank's communication by the owner of its GPU.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "megatron/comm/connection.h"
#include "megatron/comm/rank_places.h"

struct CUstream_st;

namespace megatron {

/// The kernels of a training step wait for other ranks. Connecting ranks takes CUDA calls that can wait for kernels, or
/// for a host whose queue of kernels is full, so a step's groups connect before it: inside a step, the first operation
/// of a group or channel that is not connected throws CommError.
class GpuRanks {
 public:
  virtual ~GpuRanks() = default;

  /// From now on operations start after the work in `stream`, and Work::wait() makes it wait. Call it while no
  /// operation is in flight; the stream outlives the last one.
  virtual void set_compute_stream(CUstream_st* stream) = 0;
  /// Begins to connect the groups that were made last under these names. On all members, in any order; returns
  /// without waiting for them.
  virtual void connect(const Connections& connections) = 0;
  /// Returns when all begun connections are complete.
  virtual void begin_step() = 0;
  /// Call it after the host has read the results of a step. A failure ends the waits of kernels for other ranks, which
  /// then compute with invalid data. @throw CommError if there was a failure: the results are invalid
  virtual void throw_if_failed() const = 0;
  virtual void end_step() noexcept = 0;
  /// The transport of this rank's collectives and sends between GPUs, with the reason if not by copies, a line each.
  /// After begin_step(). describe_lines() merges the lines of all ranks.
  virtual std::string transports() const = 0;
  /// The places of all ranks of the job.
  virtual const RankPlaces& places() const = 0;
  /// Between the two the compute stream captures a CUDA graph, on all ranks: operations become part of it and none
  /// runs. A capture waits for its own operations only; operations that end on the host are rejected.
  virtual void begin_recording() = 0;
  virtual void end_recording() noexcept = 0;
  /// Call it before each step that may be the launch of a graph. Each rank decides whether it is one by what has
  /// changed since its last step: ranks with changes in the same steps capture and launch in the same steps.
  /// @param site    for messages. @param change  for messages; empty: no change, and it does not wait. Else it returns
  ///                when all ranks have a change in this step.
  /// @throw CommError on all ranks, naming a rank with a change and those without
  virtual void begin_graph_step(std::string_view site, std::string_view change) = 0;
  /// Calls `launch`, which puts such a graph on the compute stream, on all ranks. Counts as one operation of all ranks,
  /// with the world's timeout from its turn on the stream, or from the call while that blocks; which of the operations
  /// in it hangs is not known. Between two launches, or at the end of the graph, all ranks of each group with
  /// copies must run an operation of NCCL: the slots of a graph are fixed, and a rank that launches it again
  /// must find them free. Destroy the graph before the groups.
  virtual void launch_graph(std::string_view site, const std::function<void()>& launch) = 0;

  /// Scope of a step. Does nothing without ranks.
  class Step {
   public:
    explicit Step(GpuRanks* ranks) : ranks_(ranks) {
      if (ranks_) ranks_->begin_step();
    }
    ~Step() {
      if (ranks_) ranks_->end_step();
    }
    /// See GpuRanks::throw_if_failed().
    void check_what_was_read() const {
      if (ranks_) ranks_->throw_if_failed();
    }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    GpuRanks* ranks_;
  };
  /// Scope of a capture. Does nothing without ranks.
  class Recording {
   public:
    explicit Recording(GpuRanks* ranks) : ranks_(ranks) {
      if (ranks_) ranks_->begin_recording();
    }
    ~Recording() {
      if (ranks_) ranks_->end_recording();
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    GpuRanks* ranks_;
  };
};

}  // namespace megatron
