// megatron generate: continues a text with a trained model.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/models/gpt/gpt_family.h"

namespace megatron {

/// @param args  the arguments after "megatron generate". @param out  receives the prompt and its continuation.
/// @return an ExitCode.
int generate_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                     const ModelFamily& family = gpt_family());

}  // namespace megatron
