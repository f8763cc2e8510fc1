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

}  // namespace

void copy_to_host(Device& device, const void* from, std::span<std::byte> to) {
  if (device.is_meta()) {
    std::ranges::fill(to, std::byte{0});
    return;
  }
  if (to.empty()) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "copy_to_host");
  device.arena.memory()->read(static_cast<const std::byte*>(from), to);
}

void copy_from_host(Device& device, std::span<const std::byte> from, void* to) {
  if (device.is_meta() || from.empty()) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "copy_from_host");
  device.arena.memory()->write(from, static_cast<std::byte*>(to));
}

void copy_on_device(Device& device, const void* from, void* to, int64_t bytes) {
  if (device.is_meta() || bytes == 0) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "copy_on_device");
  device.arena.memory()->copy(static_cast<const std::byte*>(from), static_cast<std::byte*>(to), bytes);
}

void fill_zero(Device& device, void* to, int64_t bytes) {
  if (device.is_meta() || bytes == 0) return;
  const ArenaAccess access(device.arena);
  const ProfiledOp op = copying(device, "fill_zero");
  device.arena.memory()->fill(static_cast<std::byte*>(to), 0, bytes);
}

}  // namespace megatron
