// How cuda_parallel_ranks fails, as cuda_parallel_test expects it.
#pragma once

#include <chrono>
#include <string_view>

namespace megatron::testing {

/// The timeout of operations while ranks fail and hang.
inline constexpr std::chrono::milliseconds kShortTimeout{3000};
/// Printed at the moment from which the end of the job is timed.
inline constexpr std::string_view kNow = "now\n";

}  // namespace megatron::testing
