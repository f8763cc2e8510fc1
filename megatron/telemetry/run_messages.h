// Messages of a run besides its log lines: milestones with the time, reasons to stop, memory. Megatron-LM's exact form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/telemetry/timestamp.h"

namespace megatron {

/// "[after dataloaders are built] datetime: 2026-08-01 12:34:56.123456 ". The blank at the end is Megatron's.
std::string milestone_line(std::string_view what, WallTime time);

/// With --exit-signal-handler; `signal` is its name, such as "SIGTERM".
std::string exit_after_signal_line(std::string_view signal, WallTime time);

/// With --exit-duration-in-mins; `minutes` since the start of training.
std::string exit_after_minutes_line(double minutes, WallTime time);

/// With --exit-interval.
std::string exit_at_iteration_line(std::int64_t iteration, WallTime time);

/// Memory of one device, in bytes. The allocator holds the reserved bytes, tensors use the allocated ones.
struct DeviceMemoryUse {
  std::int64_t allocated_bytes = 0;
  std::int64_t max_allocated_bytes = 0;
  std::int64_t reserved_bytes = 0;
  std::int64_t max_reserved_bytes = 0;
  std::optional<std::int64_t> device_used_bytes = {};  // --log-device-memory-used
};

/// "[Rank 0] (after 10 iterations) memory (MB) | allocated: 1.50 | ...", in units of 2^20 bytes.
std::string memory_line(int rank, std::int64_t iterations, const DeviceMemoryUse& use);

/// "Theoretical memory footprints: weight and optimizer=1.00 MB, ...", in units of 2^20 bytes.
std::string theoretical_memory_line(double weight_and_optimizer_bytes, double activation_bytes);

}  // namespace megatron
