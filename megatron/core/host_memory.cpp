#include "megatron/core/host_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/core/host_memory_limit.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace megatron {

int64_t HostMemory::capacity_bytes() const { return host_memory_for_arenas(); }

std::byte* HostMemory::reserve(int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require<OutOfMemory>(data != MAP_FAILED,
                       "[Arena] the system refuses {} bytes of address space: {}. Raise 'ulimit -v'.", bytes,
                       std::strerror(errno));
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // fewer faults and TLB misses; a refusal costs only speed
  return static_cast<std::byte*>(data);
}

void HostMemory::release(std::byte* base, int64_t bytes) noexcept { munmap(base, static_cast<size_t>(bytes)); }

void HostMemory::permit([[maybe_unused]] std::byte* data, [[maybe_unused]] int64_t bytes) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(data, static_cast<size_t>(bytes));
#endif
}
void HostMemory::forbid([[maybe_unused]] std::byte* data, [[maybe_unused]] int64_t bytes) noexcept {
#if defined(__SANITIZE_ADDRESS__)
  __asan_poison_memory_region(data, static_cast<size_t>(bytes));
#endif
}

void HostMemory::fill(std::byte* to, int value, int64_t bytes) { std::memset(to, value, static_cast<size_t>(bytes)); }
void HostMemory::read(const std::byte* from, std::span<std::byte> to) { std::memcpy(to.data(), from, to.size()); }
void HostMemory::write(std::span<const std::byte> from, std::byte* to) { std::memcpy(to, from.data(), from.size()); }
void HostMemory::copy(const std::byte* from, std::byte* to, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::byte* GuardedHostMemory::reserve(int64_t bytes) {
  std::byte* base = HostMemory::reserve(bytes);
  segments_.push_back({base, bytes});
  protect(depth_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE);
  return base;
}

void GuardedHostMemory::release(std::byte* base, int64_t bytes) noexcept {
  std::erase_if(segments_, [&](const Segment& segment) { return segment.base == base; });
  HostMemory::release(base, bytes);
}

void GuardedHostMemory::protect(int protection) const {
  for (const Segment& segment : segments_) {
    const int status = mprotect(segment.base, static_cast<size_t>(segment.bytes), protection);
    require<DeviceError>(status == 0, "[GuardedHostMemory] mprotect of {} bytes failed: {}.", segment.bytes,
                         std::strerror(errno));
  }
}

void GuardedHostMemory::begin_access() {
  if (depth_++ == 0) protect(PROT_READ | PROT_WRITE);
}

void GuardedHostMemory::end_access() noexcept {
  if (--depth_ == 0) protect(PROT_NONE);
}

}  // namespace megatron
