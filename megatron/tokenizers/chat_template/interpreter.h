// Runs a parsed chat template.
#pragma once

#include <string>

#include "megatron/tokenizers/chat_template/syntax_tree.h"

namespace megatron::chat_template {

/// The text of a template with these variables. @throw DataError, NotSupported as ChatTemplate::render.
std::string render(const Body& body, const Dict& variables);

}  // namespace megatron::chat_template
