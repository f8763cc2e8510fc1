// megatron verify: checks that every layout of ranks trains like one rank.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/models/gpt/gpt_family.h"
#include "megatron/training/verify/verify_layouts.h"

namespace megatron {

/// @param args  the arguments after "verify". @return exit status
int verify_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err,
                   const ModelFamily& family = gpt_family());

/// The same with injected faults, for tests.
int verify_command_with(const VerifyHooks& hooks, const std::vector<std::string>& args, std::ostream& out,
                        std::ostream& err, const ModelFamily& family = gpt_family());

}  // namespace megatron
