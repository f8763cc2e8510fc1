#include "commands/launch/nccl_job.h"

#include <memory>

#include "commands/exit_code.h"
#include "commands/launch/rank_store.h"
#include "megatron/comm/rendezvous/store_server.h"

namespace megatron {

int run_nccl_job(const LaunchEnvironment& launch, const JobOptions& options, const Variable& variable, int device,
                 std::ostream& err, const std::function<void(NcclWorld&, World&)>& body) {
  std::unique_ptr<StoreServer> server;  // outlives the ranks: they publish failures through it
  return run_command(options.command, err, [&] {
    std::unique_ptr<NcclWorld> ranks;
    std::atomic<bool> has_met{false};
    std::optional<SignalWatch> end;
    watch_end(launch, options, has_met, err, end);
    run_before_meeting(launch, [&] {
      const RankStore store = rank_store(launch, variable);
      if (store.is_hosted_by_first && launch.rank == 0) server = std::make_unique<StoreServer>(store.address.port);
      ranks = std::make_unique<NcclWorld>(NcclWorld::Options{.rank = launch.rank,
                                                             .size = launch.size,
                                                             .device = device,
                                                             .store = store.address,
                                                             .timeout = options.timeout});
    });
    has_met = true;
    run_nccl_rank(*ranks, options.timeout, options.num_threads, [&](World& world) { body(*ranks, world); });
  });
}

}  // namespace megatron
