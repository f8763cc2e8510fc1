#include "megatron/telemetry/timestamp.h"

#include <fmt/chrono.h>

#include <ctime>
#include <iomanip>
#include <sstream>

namespace megatron {

std::string date_time_text(WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::chrono::system_clock::to_time_t(seconds)));
}

std::string date_time_microseconds_text(WallTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  const auto microseconds = std::chrono::floor<std::chrono::microseconds>(time - seconds).count();
  return fmt::format("{}.{:06}", date_time_text(time), microseconds);
}

std::optional<WallTime> parse_date_time(const std::string& text) {
  std::tm fields{};
  std::istringstream in(text);
  in >> std::get_time(&fields, "%Y-%m-%d %H:%M:%S");
  if (in.fail()) return std::nullopt;
  fields.tm_isdst = -1;  // let mktime find out whether daylight saving time applied
  return std::chrono::system_clock::from_time_t(std::mktime(&fields));
}

double unix_seconds(WallTime time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

}  // namespace megatron
