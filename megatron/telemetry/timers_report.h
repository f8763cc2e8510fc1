// Times of timers over all ranks in Megatron-LM's form.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// --timing-log-option.
enum class TimingOption { kMinMax, kMax, kAll };

/// @param text  "minmax", "max" or "all".
/// @throw ConfigError for any other.
TimingOption parse_timing_option(std::string_view text);

/// @param seconds         [rank][timer], from Timers::take_seconds of every rank; a rank that has not run a timer gives
/// 0
///                        and is left out of that timer's row.
/// @param num_iterations  divides the times.
/// @return the report in ms without a line end, or nothing if no timer ran.
std::optional<std::string> timers_report(TimingOption option, std::span<const std::string_view> names,
                                         std::span<const std::vector<double>> seconds, double num_iterations);

}  // namespace megatron
