// megatron pretrain_gpt: trains a GPT with Megatron's flags.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/models/gpt/gpt_layer_spec.h"

namespace megatron {

/// @param args  the words after "megatron pretrain_gpt".
/// @param out   Megatron's log lines, or the help. @param err  errors.
/// @return an ExitCode.
int pretrain_gpt_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                         const LayerSpec& layer_spec = gpt_layer_spec());

}  // namespace megatron
