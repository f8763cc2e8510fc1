// Ranks as processes with a GPU each.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/gpu_ranks.h"
#include "megatron/comm/rendezvous/store_client.h"
#include "megatron/comm/world.h"

struct CUstream_st;

namespace megatron {

class NcclBackend;
class NcclHub;

/// This process's rank in its job, through NCCL (libnccl.so.2, 2.27 or newer), which the constructor
/// loads. Ranks find each other through the store of their launcher (StoreServer, torchrun's agent). Outlives
/// every World of join(). Example:
///   NcclWorld ranks({.rank = 0, .size = 2, .device = 0, .compute_stream = stream, .store = {"host", 29500, "run/"}});
///   auto world = ranks.join(std::chrono::minutes(10));
///   ProcessGroup tp = *world->split("tp", {{0, 1}});
///   tp.all_reduce(view, ReduceOp::kSum, {.site = "example"}).wait();  // the compute stream waits, the host does not
///   world.reset();
///   ranks.finish(std::chrono::minutes(10));
///
/// Operands are device memory, or host memory for small and rare operations: then Work::wait() waits on the host, as it
/// does for a barrier. The operations of a group have a communicator and a stream of their own, and so have the
/// sends of each (sender, receiver, tag); copies need no communicator. Outside training steps members
/// connect at first use, as PyTorch's groups do: most of a layout's groups are never used. The groups of steps
/// connect before: GpuRanks. CUDA_DEVICE_MAX_CONNECTIONS should allow for as many streams. Timeouts count from
/// an operation's turn on the GPU.
///
/// Differences from ThreadWorld: NCCL's reductions have the same bits on each rank, but an order of their own
/// where there are more than two, and in the dtype of the elements, but for those that are copied
/// (GroupTraits::by_copy_engine); kMax and kMin pass over NaN. Calls that disagree are not found out, but where they
/// time out. Abort of a group is abort of the world; after a failure nothing works any more, and the process is to end.
class NcclWorld final : public GpuRanks {
 public:
  struct Options {
    int rank = 0, size = 1;
    int device = 0;                         // number of the GPU, which becomes the calling thread's device
    CUstream_st* compute_stream = nullptr;  // see set_compute_stream; null: CUDA's default stream
    StoreClient::Address store;
    std::chrono::milliseconds timeout{0};  // until all ranks have arrived
    /// Groups with GroupTraits::by_copy_engine move all-gathers, sums by reduce-scatter and messages by copy engine
    /// where the GPUs reach each other (PeerCopies, PeerMessages); CopiedGroups tells what that takes. A send is done
    /// then when its message is in the receiver's memory, which may be before it is asked for. false: all go by NCCL.
    bool copies_between_gpus = true;
    /// For tests: several ranks may share a GPU, if NCCL allows it.
    bool may_share_gpus = false;
  };
  /// Longest time after an operation's timeout, or another rank's failure, until a running rank throws, in addition to
  /// CUDA's time.
  static constexpr std::chrono::milliseconds kTimeToTell{3200};

  /// Returns when all ranks have made one. @throw NotSupported without NCCL; CommError if ranks are missing;
  /// ConfigError, on all of them, if two share a GPU
  explicit NcclWorld(const Options& options);
  ~NcclWorld() override;
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  int rank() const;
  int size() const;
  void set_compute_stream(CUstream_st* stream) override;
  void connect(const Connections& connections) override;
  void begin_step() override;
  void throw_if_failed() const override;
  void end_step() noexcept override;
  std::string transports() const override;
  const RankPlaces& places() const override;
  void begin_recording() override;
  void end_recording() noexcept override;
  void begin_graph_step(std::string_view site, std::string_view change) override;
  void launch_graph(std::string_view site, const std::function<void()>& launch) override;
  /// Number of waits of this rank's host for the end of an operation: on host memory, a barrier, Work::block().
  int64_t num_host_waits() const;
  /// The world of all ranks. All of them call it. One world at a time.
  std::unique_ptr<World> join(std::chrono::milliseconds timeout);
  /// Aborts every group of every rank. Any thread, any time.
  void abort(std::string_view reason);
  /// Ends the job on this rank, after it has left its World; returns when all ranks have called it.
  /// @throw CommError if the world has failed, or does before that, or ranks have not called it after `timeout`
  void finish(std::chrono::milliseconds timeout);

 private:
  std::unique_ptr<NcclHub> hub_;
  std::map<std::string, NcclBackend*> groups_;  // of the joined world, by name
  int num_splits_ = 0;                          // of all worlds: names of groups are not reused
};

/// Runs `function` on this rank with `num_threads` OpenMP threads, and finishes. When it throws, the other ranks are
/// aborted: none hangs in an operation.
/// @throw RankFailure, also if another rank fails before all have finished
void run_nccl_rank(NcclWorld& ranks, std::chrono::milliseconds timeout, int num_threads,
                   const std::function<void(World&)>& function);

}  // namespace megatron
