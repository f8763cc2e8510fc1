#include "megatron/telemetry/run_messages.h"

#include <fmt/core.h>

#include "megatron/telemetry/training_log.h"

namespace megatron {
namespace {

constexpr double kBytesPerMegabyte = 1024.0 * 1024.0;

double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / kBytesPerMegabyte; }

}  // namespace

std::string milestone_line(std::string_view what, WallTime time) {
  return fmt::format("[{}] datetime: {} ", what, date_time_microseconds_text(time));
}

std::string exit_after_signal_line(std::string_view signal, WallTime time) {
  return milestone_line(fmt::format("exiting program after receiving {}.", signal), time);
}

std::string exit_after_minutes_line(double minutes, WallTime time) {
  return milestone_line(fmt::format("exiting program after {} minutes", python_float_text(minutes)), time);
}

std::string exit_at_iteration_line(std::int64_t iteration, WallTime time) {
  return milestone_line(fmt::format("exiting program at iteration {}", iteration), time);
}

std::string memory_line(int rank, std::int64_t iterations, const DeviceMemoryUse& use) {
  std::string line = fmt::format(
      "[Rank {}] (after {} iterations) memory (MB) | allocated: {:.2f} | max allocated: {:.2f} | reserved: {:.2f} | "
      "max reserved: {:.2f}",
      rank, iterations, megabytes(use.allocated_bytes), megabytes(use.max_allocated_bytes),
      megabytes(use.reserved_bytes), megabytes(use.max_reserved_bytes));
  if (use.device_used_bytes)
    line += fmt::format(" | total device memory used: {:.2f}", megabytes(*use.device_used_bytes));
  return line;
}

std::string theoretical_memory_line(double weight_and_optimizer_bytes, double activation_bytes) {
  return fmt::format(
      "Theoretical memory footprints: weight and optimizer={:.2f} MB, activation={:.2f} MB, total={:.2f} MB",
      weight_and_optimizer_bytes / kBytesPerMegabyte, activation_bytes / kBytesPerMegabyte,
      (weight_and_optimizer_bytes + activation_bytes) / kBytesPerMegabyte);
}

}  // namespace megatron
