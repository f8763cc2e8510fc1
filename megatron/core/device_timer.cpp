#include "megatron/core/device_timer.h"

#include <chrono>

namespace megatron {

std::vector<double> seconds_of_calls(Device& device, int64_t num_calls, const std::function<void(int64_t)>& call) {
  if constexpr (kHasCuda)
    if (device.kind() == DeviceKind::kCuda) return cuda_seconds_of_calls(device.cuda_stream(), num_calls, call);
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  for (int64_t i = 0; i < num_calls; ++i) {
    const auto start = Clock::now();
    call(i);
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  return seconds;
}

}  // namespace megatron
