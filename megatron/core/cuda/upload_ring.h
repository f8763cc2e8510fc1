// Page-locked memory through which the host hands bytes to a stream without waiting for it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace megatron {

/// Pieces are copied into the current part and from there by the GPU; a full part is used again when the GPU has read
/// it. The host waits only where it uploads more than 32 MiB without a wait for the stream: a step, which has one,
/// brings 20 bytes a token. All of it is taken at once, as to lock more pages could wait for kernels that wait for
/// other ranks.
class UploadRing {
 public:
  explicit UploadRing(cudaStream_t stream);
  ~UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;

  /// `from` may be reused on return.
  void upload(std::span<const std::byte> from, std::byte* to);
  /// The host has waited for the stream: all parts are read.
  void start_over() {
    part_ = used_ = 0;
    is_round_ = false;
  }

 private:
  static constexpr size_t kParts = 32, kPartBytes = size_t{1} << 20;
  void begin_next_part();

  cudaStream_t stream_;
  std::byte* memory_ = nullptr;
  std::array<cudaEvent_t, kParts> read_{};  // the GPU has read the part
  size_t part_ = 0, used_ = 0;
  bool is_round_ = false;  // since the last wait every part was used
};

}  // namespace megatron
