// A table of fields as the text of --help and as a page of the documentation.
#pragma once

#include <string>

#include "megatron/base/field.h"

namespace megatron {

/// Per group what it is about, then per field its flags, choices, help, unit and default.
/// The table must be bound to an object that holds the defaults.
std::string help_of(const FieldTable& table);

/// The same as Markdown: a heading and a table per group.
std::string markdown_of(const FieldTable& table);

}  // namespace megatron
