#include "megatron/core/shape.h"

#include <fmt/ranges.h>

namespace megatron {

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

}  // namespace megatron
