// One memory arena per device: named blocks, a table of what they are for, and a log that the meta run reproduces.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/core/arena_memory.h"
#include "megatron/core/offset_allocator.h"

namespace megatron {

/// The purpose of a block: a row of the memory table, and the segment of the arena that it comes from.
enum class MemoryUse { kWeights, kGradients, kOptimizer, kCommunication, kActivations, kWorkspace, kData };
inline constexpr int kNumMemoryUses = 7;
std::string_view name_of(MemoryUse use);

/// persistent: lives as long as the trainer. communication: registrable with the network, equal offsets in a group.
/// transient: within a step.
enum class MemorySegment { kPersistent, kCommunication, kTransient };
inline constexpr int kNumMemorySegments = 3;
constexpr MemorySegment segment_of(MemoryUse use) {
  switch (use) {
    case MemoryUse::kWeights:
    case MemoryUse::kGradients:
    case MemoryUse::kOptimizer:
      return MemorySegment::kPersistent;
    case MemoryUse::kCommunication:
      return MemorySegment::kCommunication;
    default:
      return MemorySegment::kTransient;
  }
}

/// Gives out named blocks. The addresses are a function of the sequence of requests alone, so an arena without memory
/// behind it (meta) has the same log, the same offsets and the same peak as the real one. Not thread-safe: one per
/// rank.
class Arena {
 public:
  struct Event {
    std::string name;
    int64_t bytes;  // negative: returned
    bool operator==(const Event&) const = default;
  };
  struct Amount {
    int64_t live = 0, peak = 0;
  };
  struct Options {
    int64_t capacity_bytes = 0;  // 0: all that the memory has, or the machine
    bool poison = false;         // fill new blocks with 0xFF (NaN), so that nothing leans on zeros
    bool record_events = false;  // keep the log; it grows without end
  };
  struct Block {
    MemoryUse use;
    int64_t offset, bytes;  // offset in the segment
    std::byte* data;        // null on meta
  };

  /// Without memory it gives out addresses alone (meta).
  Arena(const Options& options, std::unique_ptr<ArenaMemory> memory);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// @throw OutOfMemory with the table and what to do.
  Block allocate(std::string_view name, int64_t bytes, MemoryUse use);
  void release(std::string_view name, const Block& block);
  /// Says whether an address is of this arena; never on meta.
  bool holds(const void* data) const;
  /// Null on meta.
  ArenaMemory* memory() const { return memory_.get(); }

  const Amount& amount(MemoryUse use) const { return amounts_[static_cast<size_t>(use)]; }
  /// Bytes given out, and the most at any time.
  const Amount& total() const { return total_; }
  int64_t num_live_blocks() const { return num_live_blocks_; }
  /// Highest address used in a segment, gaps included: what a device must hold.
  int64_t high_water_bytes(MemorySegment segment) const;
  int64_t high_water_bytes() const;
  const std::vector<Event>& events() const { return events_; }
  void clear_events() { events_.clear(); }
  /// A line for each use: its MiB now and at its peak; then those of all, and what is free.
  std::string table() const;

 private:
  Options options_;
  std::unique_ptr<ArenaMemory> memory_;
  std::array<OffsetAllocator, kNumMemorySegments> segments_;
  std::array<std::byte*, kNumMemorySegments> bases_{};
  std::array<Amount, kNumMemoryUses> amounts_;
  Amount total_;
  int64_t num_live_blocks_ = 0;
  std::vector<Event> events_;
};

/// Within its scope kernels and copies may touch the memory of an arena; scopes nest. @see GuardedHostMemory
class ArenaAccess {
 public:
  explicit ArenaAccess(const Arena& arena) : memory_(*arena.memory()) { memory_.begin_access(); }
  ~ArenaAccess() { memory_.end_access(); }
  ArenaAccess(const ArenaAccess&) = delete;
  ArenaAccess& operator=(const ArenaAccess&) = delete;

 private:
  ArenaMemory& memory_;
};

}  // namespace megatron
