#include "megatron/comm/nccl/peer_memory.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "megatron/comm/nccl/cuda_check.h"

namespace megatron {
namespace {

constexpr const char *kReached = "reached", *kNotReached = "not reached";

/// The same for processes that one kernel runs.
std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

/// Of the caller's host and memory; empty: others cannot reach it.
std::string handle_of(void* data) {
  cudaIpcMemHandle_t handle{};
  if (!data || cudaIpcGetMemHandle(&handle, data) != cudaSuccess) return {};
  return host_id() + '\n' + std::string(reinterpret_cast<const char*>(&handle), sizeof handle);
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::make(size_t bytes, int own, const Exchange& exchange,
                                             NcclLibrary::Stream stream) {
  std::unique_ptr<PeerMemory> made(new PeerMemory(own));
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) == cudaSuccess) {
    check_cuda_call(cudaMemsetAsync(data, 0, bytes, stream), "cudaMemsetAsync");
    check_cuda_call(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  const std::vector<std::string> handles = exchange(handle_of(data));
  made->blocks_.resize(handles.size());
  made->blocks_[static_cast<size_t>(own)] = static_cast<std::byte*>(data);
  const bool is_open = made->open(handles);
  cudaGetLastError();  // what could not be had is no error of a later launch
  const std::vector<std::string> verdicts = exchange(is_open ? kReached : kNotReached);
  const bool all_reach = std::ranges::all_of(verdicts, [](const std::string& text) { return text == kReached; });
  return all_reach ? std::move(made) : nullptr;
}

bool PeerMemory::open(const std::vector<std::string>& handles) {
  const std::string host = host_id() + '\n';
  for (size_t place = 0; place < handles.size(); ++place) {
    if (!handles[place].starts_with(host)) return false;
    if (place == static_cast<size_t>(own_)) continue;
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, handles[place].data() + host.size(), sizeof handle);
    void* data = nullptr;
    if (cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) return false;
    blocks_[place] = static_cast<std::byte*>(data);
  }
  return true;
}

PeerMemory::~PeerMemory() {
  if (is_left_) return;
  for (int place = 0; place < num_ranks(); ++place) {
    if (!of(place)) continue;
    if (place == own_)
      cudaFree(of(place));
    else
      cudaIpcCloseMemHandle(of(place));
  }
}

}  // namespace megatron
