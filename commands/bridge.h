// megatron bridge: models from and to Hugging Face's format.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/models/gpt/gpt_family.h"

namespace megatron {

/// @param args  the arguments after "megatron bridge". @return an ExitCode.
int bridge_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                   const ModelFamily& family = gpt_family());

}  // namespace megatron
