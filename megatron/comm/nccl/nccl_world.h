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

/// This process's place in its job, through NCCL (libnccl.so.2, 2.27 or newer), which is loaded when one is made and
/// only then. Ranks find each other through a store: that of who started them (StoreServer, torchrun's agent). Outlives
/// every World that join() gave. Example:
///   NcclWorld ranks({.rank = 0, .size = 2, .device = 0, .compute_stream = stream, .store = {"host", 29500, "run/"}});
///   auto world = ranks.join(std::chrono::minutes(10));
///   ProcessGroup tp = *world->split("tp", {{0, 1}});
///   tp.all_reduce(view, ReduceOp::kSum, {.site = "example"}).wait();  // the compute stream waits, the host goes on
///   world.reset();
///   ranks.finish(std::chrono::minutes(10));
///
/// Operands are device memory, or host memory for what is small and rare: then Work::wait() waits on the host, as it
/// does for a barrier. The operations of a group have a communicator and a stream of their own, and so have the
/// messages of each (sender, receiver, tag); those that are copied need no communicator. Outside training steps members
/// connect them with their first, as PyTorch's groups do: most of a layout's groups are never used. What steps use is
/// connected before: GpuRanks. CUDA_DEVICE_MAX_CONNECTIONS should allow for as many streams. Timeouts count from when
/// an operation's turn has come on the GPU.
///
/// Differences from ThreadWorld: reductions are NCCL's: on each rank the same bits, but in an order of its own choice
/// where there are more than two, and in the dtype of the elements, but for those that are copied
/// (GroupTraits::by_copy_engine); kMax and kMin pass over NaN. Calls that disagree are not found out, but where they
/// time out. Abort of a group is abort of the world; after a failure nothing works any more, and the process is to end.
class NcclWorld final : public GpuRanks {
 public:
  struct Options {
    int rank = 0, size = 1;
    int device = 0;                         // number of the GPU, which becomes that of the calling thread
    CUstream_st* compute_stream = nullptr;  // see set_compute_stream; null: CUDA's default stream
    StoreClient::Address store;
    std::chrono::milliseconds timeout{0};  // until all ranks have come
    /// Groups with GroupTraits::by_copy_engine move all-gathers, sums by reduce-scatter and messages by copy engine
    /// where the GPUs reach each other (PeerCopies, PeerMessages); CopiedGroups tells what that takes. A send is done
    /// then when its message is in the receiver's memory, which may be before it is asked for. false: all go by NCCL.
    bool copies_between_gpus = true;
    /// For tests: several ranks may have one GPU, where NCCL can be brought to it.
    bool may_share_gpus = false;
  };
  /// At most so long after an operation's timeout, or another rank's failure, a rank that runs has thrown, beside what
  /// CUDA takes.
  static constexpr std::chrono::milliseconds kTimeToTell{3200};

  /// Returns when all ranks have made one. @throw NotSupported without NCCL; CommError if ranks do not come;
  /// ConfigError, on all of them, if two have one GPU
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
  /// How often this rank's host has waited for an operation to end: one on host memory, a barrier, Work::block().
  int64_t num_host_waits() const;
  /// The world of all ranks, which all of them make. One at a time.
  std::unique_ptr<World> join(std::chrono::milliseconds timeout);
  /// Aborts every group of every rank. Any thread, any time.
  void abort(std::string_view reason);
  /// Ends the job on this rank, when it has left its World; returns when all ranks have called it.
  /// @throw CommError if the world has failed, or does before that, or ranks have not called it after `timeout`
  void finish(std::chrono::milliseconds timeout);

 private:
  std::unique_ptr<NcclHub> hub_;
  std::map<std::string, NcclBackend*> groups_;  // of the world that is joined, by name
  int num_splits_ = 0;                          // of all worlds: names of groups do not come twice
};

/// Runs `function` on this rank with `num_threads` OpenMP threads, and finishes. When it throws, the other ranks are
/// aborted: none hangs in an operation.
/// @throw RankFailure, also if another rank fails before all have finished
void run_nccl_rank(NcclWorld& ranks, std::chrono::milliseconds timeout, int num_threads,
                   const std::function<void(World&)>& function);

}  // namespace megatron
