// Flags of pretrain_gpt that other commands refuse or leave out, in all their spellings.
#pragma once

#include <set>
#include <string>

namespace megatron {

/// About logs, checkpoints, validation and the end of a run: only a whole run has a use for them.
std::set<std::string> run_flags();

/// Say how many ranks to start here: --nproc-per-node.
std::set<std::string> num_ranks_flags();

}  // namespace megatron
