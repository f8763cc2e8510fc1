// Copies on a stream of their own.
#pragma once

#include <cuda_runtime_api.h>

#include <array>

#include "megatron/core/copy_queue.h"
#include "megatron/core/cuda/locked_pieces.h"

namespace megatron {

class CudaCopyQueue final : public CopyQueue {
 public:
  CudaCopyQueue(cudaStream_t kernels, const LockedPieces& locked);
  ~CudaCopyQueue() override;

  void wait_for_kernels() override;
  void copy(const void* from, void* to, int64_t bytes) override;
  Mark mark() override;
  void wait(Mark mark) override;
  void hold_kernels(Mark mark) override;

 private:
  /// An event that was recorded again stands for later copies of the same queue, and so for its older ones too.
  static constexpr size_t kEvents = 64;
  cudaEvent_t event_of(Mark mark) const { return events_[static_cast<size_t>(mark) % kEvents]; }

  cudaStream_t kernels_, copies_ = nullptr;
  const LockedPieces& locked_;
  cudaEvent_t kernels_so_far_ = nullptr;
  std::array<cudaEvent_t, kEvents> events_{};
  Mark next_ = 0;
};

}  // namespace megatron
