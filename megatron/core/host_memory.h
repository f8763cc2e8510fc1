// Arenas in the memory of the host.
#pragma once

#include <vector>

#include "megatron/core/arena_memory.h"

namespace megatron {

/// Address space; the system gives pages at the first touch.
class HostMemory : public ArenaMemory {
 public:
  int64_t capacity_bytes() const override;
  std::byte* reserve(int64_t bytes) override;
  void release(std::byte* base, int64_t bytes) noexcept override;
  bool back(std::byte*, int64_t) override { return true; }
  /// AddressSanitizer reports touches of what is not given out.
  void permit(std::byte* data, int64_t bytes) noexcept override;
  void forbid(std::byte* data, int64_t bytes) noexcept override;
  void fill(std::byte* to, int value, int64_t bytes) override;
  void read(const std::byte* from, std::span<std::byte> to) override;
  void write(std::span<const std::byte> from, std::byte* to) override;
  void copy(const std::byte* from, std::byte* to, int64_t bytes) override;
};

/// Host memory that behaves towards the host as a GPU's: any touch outside of kernels and copies is a SIGSEGV at the
/// place. For tests on one rank: pages are opened for the whole process, so another rank's thread could slip through or
/// die for it; the OpenMP team of a kernel runs inside of its launch. Each change of access costs system calls.
class GuardedHostMemory final : public HostMemory {
 public:
  std::byte* reserve(int64_t bytes) override;
  void release(std::byte* base, int64_t bytes) noexcept override;
  void begin_access() override;
  void end_access() noexcept override;

 private:
  struct Segment {
    std::byte* base;
    int64_t bytes;
  };
  void protect(int protection) const;

  std::vector<Segment> segments_;
  int depth_ = 0;
};

}  // namespace megatron
