#include "megatron/core/shape.h"
#include "megatron/base/word_list.h"

#include <fmt/core.h>

namespace megatron {

std::string Shape::to_string() const { return fmt::format("[{}]", joined(*this, ", ")); }

}  // namespace megatron

fmt::format_context::iterator fmt::formatter<megatron::Shape>::format(const megatron::Shape& shape,
                                                                      fmt::format_context& context) const {
  return fmt::format_to(context.out(), "{}", shape.to_string());
}
