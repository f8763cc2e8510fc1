#include "megatron/core/shape.h"

#include <fmt/core.h>

#include "megatron/base/word_list.h"

namespace megatron {

std::string Shape::to_string() const { return fmt::format("[{}]", joined(*this, ", ")); }

}  // namespace megatron

fmt::format_context::iterator fmt::formatter<megatron::Shape>::format(const megatron::Shape& shape,
                                                                      fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", shape.to_string());
}
