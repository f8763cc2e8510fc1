#include "megatron/training/vocab.h"

#include "megatron/base/error.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

int64_t padded_vocab_size(int64_t vocab_size, int64_t divisible_by, int64_t tensor_parallel_size) {
  require<ConfigError>(vocab_size >= 1 && divisible_by >= 1 && tensor_parallel_size >= 1,
                       "vocabulary size {}, its divisor {} and tensor-parallel size {} must be at least 1", vocab_size,
                       divisible_by, tensor_parallel_size);
  const int64_t multiple = divisible_by * tensor_parallel_size;
  return (vocab_size + multiple - 1) / multiple * multiple;
}

void set_vocab_size(PretrainConfig& config, int64_t tokenizer_vocab_size) {
  TokenizerConfig& tokenizer = config.tokenizer;
  const int64_t vocab_size = tokenizer.vocab_size.value_or(tokenizer_vocab_size);
  require<ConfigError>(vocab_size >= tokenizer_vocab_size,
                       "--vocab-size {} is smaller than the {} entries of the tokenizer: its last ids would have no "
                       "row. Leave the flag out",
                       vocab_size, tokenizer_vocab_size);
  const int64_t tensor_parallel = config.parallel.tensor_model_parallel_size;
  const int64_t padded = tokenizer.padded_vocab_size ? *tokenizer.padded_vocab_size
                         : tokenizer.pad_vocab_size
                             ? padded_vocab_size(vocab_size, tokenizer.make_vocab_size_divisible_by, tensor_parallel)
                             : vocab_size;
  require<ConfigError>(padded >= vocab_size && padded % tensor_parallel == 0,
                       "the embedding has {} rows for {} entries on {} tensor-parallel ranks: it must hold all and "
                       "divide by the ranks. Leave --padded-vocab-size and --no-pad-vocab-size out for {} rows",
                       padded, vocab_size, tensor_parallel,
                       padded_vocab_size(vocab_size, tokenizer.make_vocab_size_divisible_by, tensor_parallel));
  tokenizer.vocab_size = config.transformer.vocab_size = vocab_size;
  tokenizer.padded_vocab_size = config.transformer.padded_vocab_size = padded;
}

}  // namespace megatron
