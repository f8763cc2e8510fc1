#include "megatron/core/cuda/driver.h"

#include "megatron/base/error.h"

namespace megatron {
namespace {

template <class Function>
void find(const char* name, Function*& function) {
  constexpr unsigned int kVersion = 12000;
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(cudaGetDriverEntryPointByVersion(name, &entry, kVersion, cudaEnableDefault, &result), name);
  require<DeviceError>(result == cudaDriverEntryPointSuccess && entry != nullptr,
                       "[Device] the CUDA driver has no {}. Install a driver for CUDA 12 or newer.", name);
  function = reinterpret_cast<Function*>(entry);
}

}  // namespace

void check_cuda(cudaError_t status, const char* call) {
  require<DeviceError>(status == cudaSuccess, "[Device] {} failed: {}.", call, cudaGetErrorString(status));
}

void check_cuda(CUresult status, const char* call) {
  require<DeviceError>(status == CUDA_SUCCESS, "[Device] {} failed: CUresult {}.", call, static_cast<int>(status));
}

CudaDriver::CudaDriver() {
  find("cuMemAddressReserve", address_reserve);
  find("cuMemAddressFree", address_free);
  find("cuMemCreate", create);
  find("cuMemRelease", release);
  find("cuMemMap", map);
  find("cuMemUnmap", unmap);
  find("cuMemSetAccess", set_access);
  find("cuMemGetAllocationGranularity", get_granularity);
  find("cuStreamBatchMemOp", stream_batch_mem_op);
}

}  // namespace megatron
