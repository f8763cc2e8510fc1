// The flags of megatron generate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/evaluation_ranks.h"
#include "megatron/training/config/checkpoint_config.h"

namespace megatron {

struct GenerateConfig {
  CheckpointConfig checkpoint;
  std::optional<std::string> prompt, prompts_file;
  int64_t num_tokens = 128, batch_size = 8, top_k = 0, top_logprobs = 0, seed = 1234;
  double temperature = 1.0, top_p = 1.0;
  bool greedy = false, ignore_eod = false, json = false, logprobs = false, prompt_logprobs = false;
  std::vector<std::string> stop;
  EvaluationDevice device;
  EvaluationLayout layout;
  std::optional<std::string> vocab_file, merge_file, tokenizer_model;  // for a checkpoint without them
};

/// @throw ConfigError with all mistakes.
GenerateConfig parse_generate(const std::vector<std::string>& args);
std::string generate_help(const std::vector<std::string>& args);

}  // namespace megatron
