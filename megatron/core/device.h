// A device of one rank: its kind, its memory, its stream and its library handles.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/core/arena.h"
#include "megatron/core/random.h"
#include "megatron/core/stream.h"

namespace megatron {

/// meta runs the fronts of all ops and no kernel: shapes, memory and operation counts of a run without running it.
enum class DeviceKind { kCpu, kMeta };

/// One per rank; everything that an op needs from the machine hangs on it, so that two trainers share nothing.
class Device {
 public:
  struct Options {
    int num_threads = 1;  // OpenMP threads of this rank's kernels
    int64_t capacity_bytes = 0;
    bool poison = false;
    bool record_events = false;
  };
  Device(DeviceKind kind, const Options& options)
      : arena({kind != DeviceKind::kMeta, options.capacity_bytes, options.poison, options.record_events}),
        pinned({kind != DeviceKind::kMeta, options.capacity_bytes, options.poison, options.record_events}),
        kind_(kind),
        stream_{options.num_threads, &libraries_},
        num_tapes_(static_cast<uint32_t>(RandomKey::mix(reinterpret_cast<uintptr_t>(this)))) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  DeviceKind kind() const { return kind_; }
  bool is_meta() const { return kind_ == DeviceKind::kMeta; }
  /// The CPU's stream; on meta too, for host-only questions such as the size of a workspace.
  const CpuStream& stream() const { return stream_; }
  /// Differs from those of other devices too: a tensor of another model's tape must not pass for one of this.
  uint32_t next_tape_number() { return ++num_tapes_; }

  Arena arena;
  Arena pinned;                // host memory for offloaded values
  int64_t num_operations = 0;  // multiplications and additions of matrix products and attention, counted by fronts

 private:
  DeviceKind kind_;
  std::unique_ptr<LibraryHandles> libraries_;
  CpuStream stream_;
  uint32_t num_tapes_;
};

}  // namespace megatron
