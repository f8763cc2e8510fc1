#include "megatron/comm/nccl/stream_flags.h"

namespace megatron {
namespace {

constexpr uint32_t kFarAhead = uint32_t{1} << 30;

CUdeviceptr address_of(StreamFlag flag) {
  return reinterpret_cast<CUdeviceptr>(flag.page.device() + static_cast<size_t>(flag.index) * StreamFlag::kStride);
}

}  // namespace

void StreamFlagOperations::set(StreamFlag flag, uint32_t value) {
  auto& write = operations_.at(num_operations_++).writeValue;
  write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.address = address_of(flag);
  write.value = value;
  write.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
}

void StreamFlagOperations::await(StreamFlag flag, uint32_t value) {
  auto& wait = operations_.at(num_operations_++).waitValue;
  wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.address = address_of(flag);
  wait.value = value;
  wait.flags = CU_STREAM_WAIT_VALUE_GEQ;
}

void StreamFlagOperations::submit(const CudaDriver& driver, NcclLibrary::Stream stream) {
  check_cuda(driver.stream_batch_mem_op(stream, num_operations_, operations_.data(), 0), "cuStreamBatchMemOp");
}

void release_flags(const SharedPage& page, uint32_t value) noexcept {
  for (size_t i = 0; i < SharedPage::kBytes / sizeof(uint32_t); ++i)
    std::atomic_ref(page.host()[i]).store(value + kFarAhead, std::memory_order_relaxed);
}

}  // namespace megatron
