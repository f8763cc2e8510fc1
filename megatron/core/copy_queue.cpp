#include "megatron/core/copy_queue.h"

#include <cstring>

#include "megatron/core/arena.h"

namespace megatron {

void HostCopyQueue::copy(const void* from, void* to, int64_t bytes) {
  if (!arena_ || bytes == 0) return;
  const ArenaAccess access(*arena_);
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace megatron
