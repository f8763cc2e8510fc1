// Test programs whose ranks are processes with a GPU each: the program starts itself again, once for each.
#pragma once

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "commands/hardware_queues.h"
#include "commands/launch_environment.h"
#include "commands/process_starter.h"
#include "megatron/comm/nccl/nccl_world.h"
#include "megatron/comm/rendezvous/store_server.h"
#include "megatron/core/cuda_device.h"

namespace megatron::testing {

inline constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE

/// One rank: its GPU and its place in the job.
struct NcclRank {
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<NcclWorld> ranks;
};

/// @param copied_groups  see NcclWorld::Options; those of the commands, where none are given
inline NcclRank join_nccl_ranks(const LaunchEnvironment& launch, std::vector<std::string> copied_groups = {"tp"}) {
  NcclRank rank{open_cuda_device(launch.local_rank), nullptr};
  const Variable variable = process_environment();
  rank.ranks = std::make_unique<NcclWorld>(NcclWorld::Options{
      .rank = launch.rank,
      .size = launch.size,
      .device = launch.local_rank,
      .compute_stream = rank.device->stream(),
      .store = {variable("MASTER_ADDR").value(), std::stoi(variable("MASTER_PORT").value()), "test/"},
      .timeout = std::chrono::minutes(1),
      .copied_groups = std::move(copied_groups)});
  return rank;
}

/// Runs `rank_main` in `num_ranks` processes. @return the exit status of this process
inline int run_nccl_ranks(int num_ranks, int argc, char** argv,
                          const std::function<int(const LaunchEnvironment&)>& rank_main) {
  const LaunchEnvironment launch = launch_environment(process_environment());
  open_hardware_queues();
  if (launch.size > 1) return rank_main(launch);
  int num_gpus = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&num_gpus); status != cudaSuccess || num_gpus < num_ranks) {
    std::printf("skipped: %d GPUs answer (%s), and %d are needed\n", num_gpus, cudaGetErrorString(status), num_ranks);
    return kSkipped;
  }
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof program - 1) < 0) return 1;
  std::vector<std::string> command{program};
  command.insert(command.end(), argv + 1, argv + argc);
  const StoreServer store(0);
  return run_processes({command, num_ranks, store.port(), std::to_string(getpid())}, "test", std::cerr);
}

}  // namespace megatron::testing
