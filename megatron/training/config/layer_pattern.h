// Which layers an option applies to, as written on the command line.
#pragma once

#include <string_view>

#include "megatron/transformer/transformer_config.h"

namespace megatron {

/// Reads "4", "[1,0,0,1]" or an expression of numbers and such lists as in Python: "([0]*1+[1]*3)*2", "[0]*(2+1)".
/// Allowed are digits, "[](),+*" and spaces.
/// @throw ConfigError for anything else, for an interval below 1, for entries other than 0 and 1, for lists beyond
/// 100,000 entries.
LayerPattern parse_layer_pattern(std::string_view text);

}  // namespace megatron
