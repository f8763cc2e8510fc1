// Arenas in the memory of a GPU and in page-locked memory of the host.
#pragma once

#include <map>

#include "megatron/core/cuda/driver.h"
#include "megatron/core/cuda/locked_pieces.h"
#include "megatron/core/cuda/upload_ring.h"
#include "megatron/core/host_memory.h"

namespace megatron {

/// A segment is address space, behind which memory is mapped as it grows; so no size has to be known before the first
/// step, and after it nothing is mapped. Grows in pieces of 1/64 of what there is, at least 16 MiB.
class CudaMemory final : public ArenaMemory {
 public:
  CudaMemory(int device, cudaStream_t stream);
  ~CudaMemory() override;

  int64_t capacity_bytes() const override;
  std::byte* reserve(int64_t bytes) override;
  void release(std::byte* base, int64_t bytes) noexcept override;
  bool back(std::byte* base, int64_t bytes) override;
  void fill(std::byte* to, int value, int64_t bytes) override;
  void read(const std::byte* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, std::byte* to) override;
  void copy(const std::byte* from, std::byte* to, int64_t bytes) override;

 private:
  struct Segment {
    size_t reserved_bytes, backed_bytes;
  };
  size_t rounded(size_t bytes) const { return (bytes + granularity_ - 1) / granularity_ * granularity_; }
  /// @return false if the GPU has no more.
  bool map(std::byte* to, size_t bytes) const;

  CudaDriver driver_;
  CUmemAllocationProp properties_{};
  cudaStream_t stream_;
  UploadRing uploads_;
  size_t granularity_ = 1;
  std::map<std::byte*, Segment> segments_;
};

/// Host memory whose used part is page-locked, so that kernels reach it. What the host does waits for the kernels
/// first.
class CudaPinnedMemory final : public ArenaMemory {
 public:
  /// @param locked  told of the pieces; must outlive this.
  CudaPinnedMemory(cudaStream_t stream, LockedPieces& locked) : stream_(stream), locked_(locked) {}
  int64_t capacity_bytes() const override { return host_.capacity_bytes(); }
  std::byte* reserve(int64_t bytes) override;
  void release(std::byte* base, int64_t bytes) noexcept override;
  bool back(std::byte* base, int64_t bytes) override;
  void fill(std::byte* to, int value, int64_t bytes) override;
  void read(const std::byte* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, std::byte* to) override;
  void copy(const std::byte* from, std::byte* to, int64_t bytes) override;

 private:
  struct Segment {
    int64_t reserved_bytes, locked_bytes = 0;
    std::vector<std::byte*> pieces;  // each locked by itself
  };
  HostMemory host_;
  cudaStream_t stream_;
  LockedPieces& locked_;
  std::map<std::byte*, Segment> segments_;
};

}  // namespace megatron
