// Test programs whose ranks are processes with a GPU each: the program starts itself again, once for each.
//
// With MEGATRON_TEST_RANKS_PER_GPU=N up to N ranks share a GPU, for layouts of more ranks than there are GPUs.
// NCCL rejects two ranks of a host on one GPU, so each rank pretends to be a host of its own,
// which communicates with the others through sockets. They alternate on the GPU, unless its multi-process service runs:
// this is for correctness, and slow. The service rejects a program that needs more queues than it has ("out of
// memory").
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

#include "commands/launch/hardware_queues.h"
#include "commands/launch/launch_environment.h"
#include "commands/launch/nccl_variables.h"
#include "commands/launch/process_starter.h"
#include "megatron/comm/nccl/nccl_world.h"
#include "megatron/comm/rendezvous/store_server.h"
#include "megatron/core/cuda_device.h"

namespace megatron::testing {

inline constexpr int kSkipped = 77;  // ctest's SKIP_RETURN_CODE

inline int ranks_per_gpu() {
  const auto value = process_environment()("MEGATRON_TEST_RANKS_PER_GPU");
  return value ? std::stoi(*value) : 1;
}

/// Has ranks that share a GPU open as many hardware queues as two that have all of them (open_hardware_queues()), which
/// the multi-process service had on an H200, where it had not those of four. Unless the user has said how many.
inline void share_hardware_queues() {
  constexpr int kOfAllRanks = 64, kKeepWhatTheUserSet = 0;
  if (ranks_per_gpu() > 2)
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(kOfAllRanks / ranks_per_gpu()).c_str(), kKeepWhatTheUserSet);
}

inline int count_gpus() {
  int num_gpus = 0;
  return cudaGetDeviceCount(&num_gpus) == cudaSuccess ? num_gpus : 0;
}

/// The GPU of this rank. Call it before NCCL is loaded.
inline int take_gpu(const LaunchEnvironment& launch) {
  const int num_gpus = count_gpus();
  if (launch.local_size > num_gpus) {
    setenv("NCCL_HOSTID", fmt::format("ranks_with_a_gpu_each_{}", launch.local_rank / num_gpus).c_str(), 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  }
  return launch.local_rank % num_gpus;
}

/// One rank: its GPU and its place in the job.
struct NcclRank {
  int gpu;
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<NcclWorld> ranks;
};

/// @param copies_between_gpus  see NcclWorld::Options
inline NcclRank join_nccl_ranks(const LaunchEnvironment& launch, bool copies_between_gpus = true) {
  const int gpu = take_gpu(launch);
  NcclRank rank{gpu, open_cuda_device(gpu), nullptr};
  const Variable variable = process_environment();
  rank.ranks = std::make_unique<NcclWorld>(NcclWorld::Options{
      .rank = launch.rank,
      .size = launch.size,
      .device = gpu,
      .compute_stream = rank.device->stream(),
      .store = {variable("MASTER_ADDR").value(), std::stoi(variable("MASTER_PORT").value()), "test/"},
      .timeout = std::chrono::minutes(1),
      .copies_between_gpus = copies_between_gpus,
      .may_share_gpus = ranks_per_gpu() > 1});
  return rank;
}

/// Runs `rank_main` in `num_ranks` processes. @return the exit status of this process
inline int run_nccl_ranks(int num_ranks, int argc, char** argv,
                          const std::function<int(const LaunchEnvironment&)>& rank_main) {
  const LaunchEnvironment launch = launch_environment(process_environment());
  constexpr int64_t kAsFewAsTheUserSays = 1;
  share_hardware_queues();
  open_hardware_queues(kAsFewAsTheUserSays);
  keep_nccl_from_registering_buffers();
  if (launch.size > 1) return rank_main(launch);
  const int num_gpus = count_gpus();
  if (num_gpus * ranks_per_gpu() < num_ranks) {
    std::printf("skipped: %d GPUs answer (%s), and %d ranks need one each\n", num_gpus,
                cudaGetErrorString(cudaGetLastError()), num_ranks);
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
