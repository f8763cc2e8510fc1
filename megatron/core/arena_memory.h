// The memory behind the addresses of an arena, and the ways in which the host reaches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace megatron {

/// Memory of one kind: the host's, or a GPU's. An arena owns one; code outside of core uses copy.h.
class ArenaMemory {
 public:
  ArenaMemory() = default;
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;
  virtual ~ArenaMemory() = default;

  /// Returns the bytes that the machine has to give.
  virtual int64_t capacity_bytes() const = 0;
  /// Address space of one segment; memory comes with back(). @throw DeviceError
  virtual std::byte* reserve(int64_t bytes) = 0;
  virtual void release(std::byte* base, int64_t bytes) noexcept = 0;
  /// Puts memory behind the first `bytes` of a segment. @return false if there is no more.
  virtual bool back(std::byte* base, int64_t bytes) = 0;
  /// For checkers of accesses: these bytes are given out, or belong to nobody.
  virtual void permit(std::byte*, int64_t) noexcept {}
  virtual void forbid(std::byte*, int64_t) noexcept {}

  /// In the order of the kernels. `read` is over when it returns; `write` has taken the bytes of `from` by then.
  virtual void fill(std::byte* to, int value, int64_t bytes) = 0;
  virtual void read(const std::byte* from, std::span<std::byte> to) = 0;
  virtual void write(std::span<const std::byte> from, std::byte* to) = 0;
  virtual void copy(const std::byte* from, std::byte* to, int64_t bytes) = 0;

  /// Kernels and copies run between begin_access and end_access, which nest. @see GuardedHostMemory
  virtual void begin_access() {}
  virtual void end_access() noexcept {}
};

}  // namespace megatron
