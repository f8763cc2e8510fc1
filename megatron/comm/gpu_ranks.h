// What the owner of a rank's GPU tells the groups of ranks.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "megatron/comm/connection.h"
#include "megatron/comm/rank_places.h"

struct CUstream_st;

namespace megatron {

/// The kernels of a training step wait for other ranks. To connect ranks takes CUDA calls that can wait for kernels, or
/// for a host whose queue of kernels is full, so what a step uses is connected before: inside one, the first operation
/// of a group or channel that is not throws CommError.
class GpuRanks {
 public:
  virtual ~GpuRanks() = default;

  /// Operations start after what `stream` holds, and Work::wait() makes it wait, from now on. While no operation is
  /// under way; the stream outlives the last one.
  virtual void set_compute_stream(CUstream_st* stream) = 0;
  /// Begins to connect the groups that have been made last under these names. On all members, in any order; returns
  /// without waiting for them.
  virtual void connect(const Connections& connections) = 0;
  /// Returns when all that has been begun is connected.
  virtual void begin_step() = 0;
  /// After the host has read what a step gave. A failure ends the waits of kernels for other ranks, which then compute
  /// with whatever is there. @throw CommError if there was one: what was read is worthless
  virtual void throw_if_failed() const = 0;
  virtual void end_step() noexcept = 0;
  /// By what this rank's rows and messages go between GPUs, and why not by copies, a line for each kind. After
  /// begin_step(). What all ranks say: describe_lines().
  virtual std::string transports() const = 0;
  /// Of all ranks of the job.
  virtual const RankPlaces& places() const = 0;
  /// Between the two the compute stream records a CUDA graph, on all ranks: operations become part of it and none runs.
  /// What is issued there is waited for there, and nothing else; what ends on the host is refused.
  virtual void begin_recording() = 0;
  virtual void end_recording() noexcept = 0;
  /// Before each step that may be the launch of a graph. A rank finds by itself whether it is one, from what it finds
  /// changed since its last step: ranks with changes in the same steps record and launch in the same ones.
  /// @param site    for messages. @param change  too; empty: nothing has changed, and it does not wait. Else it returns
  ///                when all ranks have a change in this step.
  /// @throw CommError, on all ranks, naming one with a change and those without
  virtual void begin_graph_step(std::string_view site, std::string_view change) = 0;
  /// Calls `launch`, which puts such a graph on the compute stream, on all ranks. Counts as one operation of them all,
  /// with the world's timeout from when its turn has come, or from the call while that stands; which of the operations
  /// in it waits is not known. Between two launches, or at the end of the graph, all ranks of each group that moves
  /// rows by copies meet in an operation of NCCL: the slots of a graph do not count on, and a rank that begins it again
  /// must find them used. Destroy the graph before the groups.
  virtual void launch_graph(std::string_view site, const std::function<void()>& launch) = 0;

  /// The time of a step. Of no ranks: nothing.
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
  /// The time of a recording. Of no ranks: nothing.
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
