// The functions of the CUDA driver that the runtime lacks. They are asked for at run time, so that a program that was
// built with CUDA starts where there is no driver.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace megatron {

/// @throw DeviceError with the call that failed.
void check_cuda(cudaError_t status, const char* call);
void check_cuda(CUresult status, const char* call);

/// Address space and memory apart, CUDA's "virtual memory management"; and streams that wait for words in memory.
class CudaDriver {
 public:
  /// Asks the driver; a device must be current. @throw DeviceError if it is too old.
  CudaDriver();

  decltype(&cuMemAddressReserve) address_reserve = nullptr;
  decltype(&cuMemAddressFree) address_free = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemGetAllocationGranularity) get_granularity = nullptr;
  decltype(&cuStreamBatchMemOp) stream_batch_mem_op = nullptr;
};

}  // namespace megatron
