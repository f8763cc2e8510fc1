#include "megatron/core/cuda/cuda_copy_queue.h"

#include "megatron/core/cuda/driver.h"

namespace megatron {

CudaCopyQueue::CudaCopyQueue(cudaStream_t kernels, const LockedPieces& locked) : kernels_(kernels), locked_(locked) {
  check_cuda(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreate");
  check_cuda(cudaEventCreateWithFlags(&kernels_so_far_, cudaEventDisableTiming), "cudaEventCreate");
  for (cudaEvent_t& event : events_)
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
}

CudaCopyQueue::~CudaCopyQueue() {
  cudaStreamSynchronize(copies_);
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
  cudaEventDestroy(kernels_so_far_);
  cudaStreamDestroy(copies_);
}

void CudaCopyQueue::wait_for_kernels() {
  check_cuda(cudaEventRecord(kernels_so_far_, kernels_), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(copies_, kernels_so_far_, 0), "cudaStreamWaitEvent");
}

void CudaCopyQueue::copy(const void* from, void* to, int64_t bytes) {
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  while (bytes > 0) {
    const int64_t run = locked_.run(target, locked_.run(source, bytes));
    check_cuda(cudaMemcpyAsync(target, source, static_cast<size_t>(run), cudaMemcpyDefault, copies_),
               "copy between the GPU and the host");
    source += run;
    target += run;
    bytes -= run;
  }
}

CopyQueue::Mark CudaCopyQueue::mark() {
  check_cuda(cudaEventRecord(event_of(next_), copies_), "cudaEventRecord");
  return next_++;
}

void CudaCopyQueue::wait(Mark mark) { check_cuda(cudaEventSynchronize(event_of(mark)), "copies of the GPU"); }

void CudaCopyQueue::hold_kernels(Mark mark) {
  check_cuda(cudaStreamWaitEvent(kernels_, event_of(mark), 0), "cudaStreamWaitEvent");
}

}  // namespace megatron
