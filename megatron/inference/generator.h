// Continues a text token by token. Layers keep what they need of the tokens before (transformer/layer_state.h).
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "megatron/inference/sampling.h"
#include "megatron/models/model.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  SamplingOptions sampling;
  uint64_t seed = 1234;
  std::optional<TokenId> stop_token;  // not part of the result
};

/// Refers to the model. A sequence ends at the model's --max-position-embeddings.
class Generator {
 public:
  Generator(const Context& ctx, const Model& model) : ctx_(ctx), model_(model) {}

  /// @param prompt    at least one token.
  /// @param on_token  called with each new token as soon as it is known; may be empty.
  /// @return the new tokens. @throw DataError for an empty or too long prompt or a token outside of the vocabulary.
  std::vector<TokenId> generate(const std::vector<TokenId>& prompt, const GenerateOptions& options,
                                const std::function<void(TokenId)>& on_token);

 private:
  /// Logits of the last of `tokens`, which stand at `first_position` and after.
  std::vector<double> last_logits(const std::vector<TokenId>& tokens, int64_t first_position,
                                  const LayerStates& states);

  Context ctx_;
  const Model& model_;
};

}  // namespace megatron
