#include "megatron/base/field_needs.h"

#include <string_view>

namespace megatron {

void check_needs(const FieldTable& table, const GivenFields& given, Mistakes& mistakes) {
  table.for_each([&](const Field& field) {
    if (!field.need || !given.contains(field.name) || field.need->is_met()) return;
    // If the needed flag has a wrong value, that mistake is enough.
    const std::string_view needed = std::string_view(field.need->text).substr(0, field.need->text.find(' '));
    mistakes.add({needed}, "{} needs {}", field.spelling(), field.need->text);
  });
}

}  // namespace megatron
