// A table of fields as the text of --help and as a page of the documentation.
#pragma once

#include <string>
#include <string_view>

#include "megatron/base/field.h"

namespace megatron {

/// Per group what it is about, then per field its flags, choices, help, unit and default.
/// The table must be bound to an object that holds the defaults.
std::string help_of(const FieldTable& table);

/// All that is known of one flag: its spellings, meaning, default, range, choices and limits.
std::string help_of(const Field& field);

/// help_of() of the flags whose spelling, meaning, default or choices contain `word`, in their groups; empty if there
/// is none. Capital letters do not matter.
std::string help_about(const FieldTable& table, std::string_view word);

/// A heading and its text as help_of() shows them.
std::string help_entry(std::string_view heading, std::string_view text);

/// Says whether `text` contains `word`; capital letters do not matter.
bool mentions(std::string_view text, std::string_view word);

/// The whole table as Markdown: a heading and a table per group.
std::string markdown_of(const FieldTable& table);

}  // namespace megatron
