#include "megatron/core/copy.h"

#include <algorithm>
#include <source_location>

#include "megatron/core/profiler.h"

namespace megatron {
namespace {

/// Named after the function that copies.
ProfiledOp copying(const Device& device, std::string_view name) {
  return {device.profiler, {}, {.name = name}, std::source_location::current()};
}

/// The memory that an address of the device belongs to.
ArenaMemory& memory_of(const Device& device, const void* data) {
  return *(device.pinned.holds(data) ? device.pinned : device.arena).memory();
}

/// The host copies if a side is in host memory.
void copy_by_host(Device& device, const std::byte* from, std::byte* to, int64_t bytes) {
  device.synchronize();
  if (device.pinned.holds(from))
    memory_of(device, to).write({from, static_cast<size_t>(bytes)}, to);
  else
    memory_of(device, from).read(from, {to, static_cast<size_t>(bytes)});
}

}  // namespace

void copy_to_host(Device& device, const void* from, std::span<std::byte> to) {
  if (device.is_meta()) {
    std::ranges::fill(to, std::byte{0});
    return;
  }
  if (to.empty()) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "copy_to_host");
  memory_of(device, from).read(static_cast<const std::byte*>(from), to);
}

void copy_from_host(Device& device, std::span<const std::byte> from, void* to) {
  if (device.is_meta() || from.empty()) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "copy_from_host");
  memory_of(device, to).write(from, static_cast<std::byte*>(to));
}

void copy_on_device(Device& device, const void* from, void* to, int64_t bytes) {
  if (device.is_meta() || bytes == 0) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "copy_on_device");
  const auto* source = static_cast<const std::byte*>(from);
  auto* target = static_cast<std::byte*>(to);
  if (device.pinned.holds(from) || device.pinned.holds(to)) return copy_by_host(device, source, target, bytes);
  device.arena.memory()->copy(source, target, bytes);
}

void fill_zero(Device& device, void* to, int64_t bytes) {
  if (device.is_meta() || bytes == 0) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "fill_zero");
  memory_of(device, to).fill(static_cast<std::byte*>(to), 0, bytes);
}

}  // namespace megatron
