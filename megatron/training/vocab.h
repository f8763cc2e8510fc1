// The vocabulary's size in memory.
#pragma once

#include <cstdint>

namespace megatron {

/// The smallest multiple of `divisible_by * tensor_parallel_size` that holds `vocab_size` entries, so that each rank
/// owns an equal block of rows. Source: Megatron's calculate_padded_vocab_size.
/// @throw ConfigError if an argument is below 1.
int64_t padded_vocab_size(int64_t vocab_size, int64_t divisible_by, int64_t tensor_parallel_size);

struct PretrainConfig;

/// Settles vocabulary and padded vocabulary of `tokenizer` and `transformer` once the tokenizer is known: --vocab-size,
/// --padded-vocab-size and --no-pad-vocab-size win over it.
/// @throw ConfigError if the padded size is smaller than the tokenizer's vocabulary.
void set_vocab_size(PretrainConfig& config, int64_t tokenizer_vocab_size);

}  // namespace megatron
