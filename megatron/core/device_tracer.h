// A profile needs this of a device whose kernels run apart from the host.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron {

/// Marks on the compute stream, and ranges for tools that watch the program.
class DeviceTracer {
 public:
  virtual ~DeviceTracer() = default;
  /// Puts a mark on the compute stream, behind what it holds. Does not wait; a failure is told by read_marks().
  virtual void mark() noexcept = 0;
  /// When the compute stream came to the marks since the last call, in order: nanoseconds of the host's steady clock.
  /// Waits for the last of them. @throw DeviceError
  virtual std::vector<int64_t> read_marks() = 0;
  /// A range of the calling thread, as NVTX has them; costs next to nothing where no tool is attached.
  virtual void push_range(std::string_view name) = 0;
  virtual void pop_range() noexcept = 0;
};

}  // namespace megatron
