// megatron eval: the loss of a model on tokens or text.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/models/gpt/gpt_family.h"

namespace megatron {

/// @param args  the arguments after "megatron eval". @return an ExitCode.
int eval_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                 const ModelFamily& family = gpt_family());

}  // namespace megatron
