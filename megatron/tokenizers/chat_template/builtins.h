// Filters, tests, methods and functions that chat templates may use.
#pragma once

#include <string_view>

#include "megatron/tokenizers/chat_template/value.h"

namespace megatron::chat_template {

bool is_filter(std::string_view name);
/// @param arguments  the first is the filtered value. @throw DataError for values that the filter does not take.
Value call_filter(std::string_view name, const Arguments& arguments);

bool is_test(std::string_view name);
/// @param arguments  the first is the tested value.
bool call_test(std::string_view name, const Arguments& arguments);

/// Says whether values of its kind have a method of Python's by this name that is supported.
bool has_method(const Value& object, std::string_view name);
Value call_method(const Value& object, std::string_view name, const Arguments& arguments);

/// The attribute or item of this name; undefined if there is none. @throw DataError if the object is undefined.
Value attribute_of(const Value& object, std::string_view name);
/// The elements that a loop over a value takes: of a string its characters, of a dict its keys.
List elements_of(const Value& value);

/// The argument at a place behind the value, or by its name; `otherwise` if it is not given.
Value argument(const Arguments& arguments, size_t place, std::string_view name, const Value& otherwise);

}  // namespace megatron::chat_template
