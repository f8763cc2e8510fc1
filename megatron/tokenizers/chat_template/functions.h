// Functions that chat templates may call.
#pragma once

#include <string_view>

#include "megatron/tokenizers/chat_template/scope.h"

namespace megatron::chat_template {

/// Marks the dict of a namespace; no name of a template has a space.
constexpr std::string_view kNamespaceMark = " namespace";

/// Sets the functions that every template has: namespace, dict, range and raise_exception.
void set_functions(Scope& scope);

/// The function strftime_now of a conversation that names a date. The clock is never asked: a text that changes with
/// the day would make a run that resumes train on other samples.
Value strftime_now(const Value& date);

}  // namespace megatron::chat_template
