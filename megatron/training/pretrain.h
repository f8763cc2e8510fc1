// The whole of `megatron pretrain_gpt` behind the command line: set-up, training loop, validation, checkpoints.
#pragma once

#include "megatron/training/pretrain_environment.h"

namespace megatron {

class Tokenizer;

/// Trains, evaluates and saves as `config` says, on as many ranks as it says: threads of this process, which
/// share the data sets, or environment.world, where rank 0 builds the index caches before the others read them. Returns
/// when training is over or an exit condition holds. Ranks of a world need the same `config`: require_same_config().
/// @param tokenizer  of the flags: tokenizer_of().
/// With --save it holds the SaveLocks of all folders of checkpoints from before the first file that it writes to its
/// return.
/// @throw Error of any kind for bad data, checkpoints and losses that are not finite; RankFailure with this as its
/// cause where there are several ranks.
void pretrain(PretrainConfig config, const Tokenizer& tokenizer, const PretrainEnvironment& environment);

}  // namespace megatron
