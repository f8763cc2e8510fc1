// The texts that megatron generate continues.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/generate_config.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct Prompt {
  std::string text;
  int64_t line = 0;  // of --prompts-file; 0: --prompt
  std::vector<TokenId> ids = {};
};

/// --prompt, or the lines of --prompts-file that are not empty. @throw DataError naming the line
std::vector<Prompt> read_prompts(const GenerateConfig& config);
/// Adds the ids, below `vocab_size`. @throw DataError naming the line of a prompt that the model cannot continue
void encode_prompts(const GenerateConfig& config, const Tokenizer& tokenizer, int64_t max_sequence_length,
                    int64_t vocab_size, std::vector<Prompt>& prompts);

}  // namespace megatron
