#include "megatron/inference/generator.h"

#include <algorithm>

#include "megatron/core/copy.h"

namespace megatron {

std::vector<double> Generator::last_logits(const std::vector<TokenId>& tokens, int64_t first_position,
                                           const LayerStates& states) {
  const auto s = static_cast<int64_t>(tokens.size());
  Tensor ids = ctx_.empty("generate.tokens", {s, 1}, DType::kInt32, MemoryUse::kData);
  write_values(ctx_.device, std::span<const TokenId>(tokens), ids);
  const SequenceLayout layout = SequenceLayout::uniform(ctx_, {.s = s, .b = 1, .first_position = first_position});
  const Tensor logits = model_.logits(ctx_, ids, layout, &states);
  const Tensor last = logits.slice(0, s - 1, 1);
  std::vector<double> row(static_cast<size_t>(model_.config().vocab_size));  // without the padding's columns
  dispatch_floating(logits.dtype(), [&]<class T>() {
    const std::vector<T> padded = read_values<T>(ctx_.device, last);
    for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<double>(padded[i]);
  });
  return row;
}

std::vector<TokenId> Generator::generate(const std::vector<TokenId>& prompt, const GenerateOptions& options,
                                         const std::function<void(TokenId)>& on_token) {
  const int64_t max_length = model_.config().max_sequence_length;
  const auto prompt_length = static_cast<int64_t>(prompt.size());
  require<DataError>(prompt_length > 0, "[generate] the prompt has no tokens. Give at least one character.");
  require<DataError>(prompt_length < max_length,
                     "[generate] the prompt has {} tokens, the model sees at most {}. Shorten the prompt.",
                     prompt_length, max_length);
  for (TokenId id : prompt)
    require<DataError>(id >= 0 && id < model_.config().vocab_size,
                       "[generate] token {} is not in the model's vocabulary of {}. The tokenizer is not the model's.",
                       id, model_.config().vocab_size);
  const int64_t num_new = std::min(options.max_new_tokens, max_length - prompt_length);
  const LayerStates states = model_.make_states(ctx_, {.max_rows = prompt_length + num_new, .b = 1});
  const RandomKey key = RandomKey::from_seed(options.seed).at("generate");
  std::vector<TokenId> generated, input = prompt;
  for (int64_t position = 0; std::ssize(generated) < num_new;) {
    const std::vector<double> logits = last_logits(input, position, states);
    position += std::ssize(input);
    const auto token = static_cast<TokenId>(sample_token(logits, options.sampling, key, position));
    if (token == options.stop_token) break;
    generated.push_back(token);
    if (on_token) on_token(token);
    input = {token};
  }
  return generated;
}

}  // namespace megatron
