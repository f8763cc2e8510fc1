// Flags of pretrain_gpt that only a whole run has a use for: commands that train a few steps refuse them.
#pragma once

#include <set>
#include <string>

namespace megatron {

/// Spellings of flags about logs, checkpoints, validation and the end of a run.
std::set<std::string> run_flags();

}  // namespace megatron
