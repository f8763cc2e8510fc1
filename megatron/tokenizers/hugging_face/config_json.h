// tokenizer_config.json and its kin, as transformers writes them.
#pragma once

#include <string>
#include <string_view>

namespace megatron::hugging_face {

/// JSON in which integers beyond 64 bits are floating-point numbers, so that simdjson reads it: transformers writes a
/// length without a limit as 1000000000000000019884624838656.
std::string with_readable_integers(std::string_view json);

}  // namespace megatron::hugging_face
