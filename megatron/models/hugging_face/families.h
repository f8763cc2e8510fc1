// The families of Hugging Face models that can be converted.
#pragma once

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

std::vector<Family> families();

/// The family of a config.json. @param source  names the file in errors.
/// @throw NotSupported naming those that are supported.
Family family_of(const Json& config, const std::string& source);

}  // namespace megatron::hugging_face
