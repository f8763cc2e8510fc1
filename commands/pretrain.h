// megatron pretrain_NAME: trains a model of one family with Megatron's flags.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/models/model_family.h"

namespace megatron {

/// @param args  the words after "megatron pretrain_NAME", where NAME is that of the family.
/// @param out   Megatron's log lines, or the help. @param err  errors.
/// @return an ExitCode.
int pretrain_command(const ModelFamily& family, const std::vector<std::string>& args, std::ostream& out,
                     std::ostream& err);

}  // namespace megatron
