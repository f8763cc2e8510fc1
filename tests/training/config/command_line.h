// A small valid command line that tests change.
#pragma once

#include <string>
#include <vector>

#include "megatron/training/config/pretrain_config.h"

namespace megatron::testing {

using Words = std::vector<std::string>;

inline Words with(Words extra = {}) {
  Words words{"--num-layers",
              "4",
              "--hidden-size",
              "64",
              "--num-attention-heads",
              "4",
              "--seq-length",
              "32",
              "--max-position-embeddings",
              "32",
              "--micro-batch-size",
              "2",
              "--train-iters",
              "20",
              "--lr",
              "1e-3",
              "--vocab-size",
              "100",
              "--tokenizer-type",
              "NullTokenizer",
              "--mock-data"};
  words.insert(words.end(), extra.begin(), extra.end());
  return words;
}

inline PretrainConfig parse(Words extra = {}, int world_size = 1) {
  return parse_pretrain_gpt(with(std::move(extra)), world_size, {}, RuleSet::kMegatron);
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
