// A small valid command line that tests change.
#pragma once

#include <string>

#include "megatron/training/config/pretrain_config.h"
#include "tests/testing/words.h"

namespace megatron::testing {

inline Words with(const Words& extra = {}) {
  return joined(words_of("--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 32"
                         " --max-position-embeddings 32 --micro-batch-size 2 --train-iters 20 --lr 1e-3"
                         " --vocab-size 100 --tokenizer-type NullTokenizer --mock-data"),
                extra);
}

inline PretrainConfig parse(const Words& extra = {}, int world_size = 1) {
  return parse_pretrain_gpt(with(extra), world_size, {}, RuleSet::kMegatron);
}

/// The text of the ConfigError; empty if the command line is accepted.
inline std::string refusal(const Words& words, int world_size = 1, RuleSet rules = RuleSet::kMegatron) {
  try {
    parse_pretrain_gpt(words, world_size, {}, rules);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

}  // namespace megatron::testing
