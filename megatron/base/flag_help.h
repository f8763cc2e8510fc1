// The text of --help.
#pragma once

#include <string>

#include "megatron/base/field.h"

namespace megatron {

/// Per group what it is about, then per field its flags, choices, help, unit and default.
/// The table must be bound to an object that holds the defaults.
std::string help_of(const FieldTable& table);

}  // namespace megatron
