// Flags of pretrain_gpt that other commands reject or omit, in all their spellings.
#pragma once

#include <set>
#include <string>

namespace megatron {

/// Flags of logs, checkpoints, validation and the end of a run, which only a whole run uses.
std::set<std::string> run_flags();

/// Flags that set the number of ranks to start here: --nproc-per-node.
std::set<std::string> num_ranks_flags();

}  // namespace megatron
