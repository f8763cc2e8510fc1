#include "megatron/core/cuda/upload_ring.h"

#include <algorithm>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/core/cuda/driver.h"

namespace megatron {

UploadRing::UploadRing(cudaStream_t stream) : stream_(stream) {
  void* memory = nullptr;
  check_cuda(cudaHostAlloc(&memory, kParts * kPartBytes, cudaHostAllocDefault), "cudaHostAlloc");
  memory_ = static_cast<std::byte*>(memory);
  for (cudaEvent_t& event : read_) check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEvent");
}

UploadRing::~UploadRing() {
  cudaStreamSynchronize(stream_);
  for (cudaEvent_t event : read_) cudaEventDestroy(event);
  cudaFreeHost(memory_);
}

void UploadRing::begin_next_part() {
  check_cuda(cudaEventRecord(read_[part_], stream_), "cudaEventRecord");
  used_ = 0;
  if (++part_ == kParts) {
    part_ = 0;
    is_round_ = true;
  }
  if (is_round_) check_cuda(cudaEventSynchronize(read_[part_]), "cudaEventSynchronize");
}

void UploadRing::upload(std::span<const std::byte> from, std::byte* to) {
  cudaStreamCaptureStatus recording = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream_, &recording), "cudaStreamIsCapturing");
  require<InternalError>(recording == cudaStreamCaptureStatusNone,
                         "[Device] the host writes {} bytes to the device while a CUDA graph is recorded: its launches "
                         "would read what the host's buffer holds by then. Write before the recording.",
                         from.size());
  while (!from.empty()) {
    if (used_ == kPartBytes) begin_next_part();
    const size_t bytes = std::min(from.size(), kPartBytes - used_);
    std::byte* place = memory_ + part_ * kPartBytes + used_;
    std::memcpy(place, from.data(), bytes);
    check_cuda(cudaMemcpyAsync(to, place, bytes, cudaMemcpyHostToDevice, stream_), "copy to the device");
    used_ += bytes;
    from = from.subspan(bytes);
    to += bytes;
  }
}

}  // namespace megatron
