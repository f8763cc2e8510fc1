// Wall-clock time as text, in local time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace megatron {

using WallTime = std::chrono::system_clock::time_point;

/// "2026-08-01 12:34:56".
std::string date_time_text(WallTime time);

/// "2026-08-01 12:34:56.123456".
std::string date_time_microseconds_text(WallTime time);

/// Reads the text of date_time_text(); nothing if `text` begins otherwise.
std::optional<WallTime> parse_date_time(const std::string& text);

/// Seconds since 1970-01-01 UTC, with fraction.
double unix_seconds(WallTime time);

}  // namespace megatron
