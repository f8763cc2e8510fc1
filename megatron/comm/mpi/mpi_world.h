// Ranks as processes that mpirun or srun started.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "megatron/comm/world.h"

namespace megatron {

class MpiTransport;
class MpiHub;

/// This process's rank in its job, through Open MPI, which the constructor loads. One for each
/// process. Outlives every World of join(). Example:
///   MpiWorld ranks;
///   auto world = ranks.join(ranks.size(), std::chrono::minutes(10));
///   ProcessGroup tp = *world->split("tp", {{0, 1}});
///   tp.all_reduce(view, ReduceOp::kSum, {.site = "example"}).wait();
///   world.reset();
///   ranks.finish(std::chrono::minutes(10));
///
/// If ranks may outnumber cores, set OMPI_MCA_mpi_yield_when_idle=0 before: waiting ranks sleep, and Open MPI's yields
/// cost time slices. Differences from ThreadWorld: abort of a group is abort of the world; tags of messages are 0 to
/// 4094; there are at most 65536 calls of split(); after a failure nothing works any more, and the job must be ended
/// with end_all().
class MpiWorld {
 public:
  /// @throw NotSupported if Open MPI is not installed; CommError if it cannot start
  MpiWorld();
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const;
  int size() const;
  /// The world of the first `num_ranks` ranks, including this one. All of them call it. One world at a time.
  /// @throw ConfigError if this rank is not among them
  std::unique_ptr<World> join(int num_ranks, std::chrono::milliseconds timeout);
  /// Aborts every group of every rank. Any thread, any time.
  void abort(std::string_view reason);

  /// Ends the job on this rank, after it has left its World; returns when all ranks have called it.
  /// @throw CommError if the world has failed, or does before that, or ranks have not called it after `timeout`
  /// @param on_hang gets, in another thread, the reason if Open MPI does not end in that time: only the process can end
  void finish(std::chrono::milliseconds timeout, const std::function<void(const std::string& reason)>& on_hang = {});
  /// Ends the processes of all ranks with this exit status, after a time in which ranks that know of the failure
  /// can report it. The status of the rank that failed first counts.
  [[noreturn]] void end_all(int exit_status) const;

 private:
  std::unique_ptr<MpiTransport> transport_;
  std::unique_ptr<MpiHub> hub_;
};

/// Runs `function` on this rank with `num_threads` OpenMP threads, and finishes. When it throws, the other ranks are
/// aborted: none hangs in an operation. @throw RankFailure, also if another rank fails before all have finished
/// @param on_hang see MpiWorld::finish
void run_mpi_rank(MpiWorld& ranks, std::chrono::milliseconds timeout, int num_threads,
                  const std::function<void(World&)>& function,
                  const std::function<void(const std::string& reason)>& on_hang = {});

}  // namespace megatron
