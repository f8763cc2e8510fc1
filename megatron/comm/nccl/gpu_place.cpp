#include "megatron/comm/nccl/gpu_place.h"

#include <cuda_runtime_api.h>

#include <array>

#include "megatron/base/process_identity.h"
#include "megatron/comm/nccl/cuda_check.h"

namespace megatron {
namespace {

std::string bus_address(int device) {
  std::array<char, 32> address{};
  check_cuda_call(cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device),
                  "cudaDeviceGetPCIBusId");
  return address.data();
}

}  // namespace

RankPlace gpu_place(int device) {
  RankPlace place{host_identity(), host_name(), bus_address(device), {}};
  int count = 0;
  check_cuda_call(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int other = 0; other < count; ++other) {
    if (other == device) continue;
    int is_reached = 0;
    check_cuda_call(cudaDeviceCanAccessPeer(&is_reached, device, other), "cudaDeviceCanAccessPeer");
    if (!is_reached) place.out_of_reach.push_back(bus_address(other));
  }
  return place;
}

}  // namespace megatron
