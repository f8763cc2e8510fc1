// Values that protocols 0 and 1 write as text.
#pragma once

#include <string>
#include <string_view>

namespace megatron::pickle {

/// Latin1 with \uXXXX and \UXXXXXXXX escapes, as UTF-8. @throw CheckpointError for a broken escape.
std::string decode_raw_unicode_escape(std::string_view text);
/// "-123L" as little-endian two's complement. @throw CheckpointError unless it is a number of at most 4300 digits
/// (Python's own limit, since the conversion takes quadratic time).
std::string decode_decimal(std::string_view text);
double decode_float(std::string_view text);

}  // namespace megatron::pickle
