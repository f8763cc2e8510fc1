// The bound of all timeouts.
#pragma once

#include <chrono>

namespace megatron {

/// A timeout beyond this means "never", and its sum with the time of day would overflow.
inline constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

}  // namespace megatron
