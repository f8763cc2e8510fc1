// Continues sequences of tokens: what follows a prompt, one token after the other.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "megatron/comm/gpu_ranks.h"
#include "megatron/inference/log_probs.h"
#include "megatron/inference/sampling.h"
#include "megatron/models/model.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  int64_t batch_size = 1;  // prompts that are continued together
  SamplingOptions sampling;
  uint64_t seed = 1234;
  std::optional<TokenId> stop_token = {};  // not part of the result
  bool scores_tokens = false;              // gives log-probabilities of the new tokens
  bool scores_prompt = false;              // and of those of the prompt, but the first
  int64_t num_top = 0;                     // most likely tokens to give where tokens are scored
};

/// Why a continuation ended: its number of tokens or the model's context, the stop token, or GenerateHooks::on_token.
enum class FinishReason { kLength, kEod, kStop };

struct Continuation {
  std::vector<ScoredToken> prompt = {};  // with scores_prompt: its tokens after the first
  std::vector<ScoredToken> added = {};   // log-probabilities only with scores_tokens
  FinishReason reason = FinishReason::kLength;
};

/// Called while prompts are continued, with the number of the prompt; each may be empty.
struct GenerateHooks {
  /// Gets each new token as soon as it is known. Returns false to end the continuation behind it.
  std::function<bool(int64_t prompt, TokenId)> on_token;
  std::function<void(int64_t prompt, const Continuation&)> on_end;
};

/// Refers to the model, whose ranks all continue the same prompts. A sequence ends at the model's
/// --max-position-embeddings.
///
/// Prompts of a batch have any lengths; when one has ended, the next prompt takes its place. A continuation does not
/// depend on the others: random numbers are a function of the seed, the number of the prompt and the position. On CPUs
/// its bits do not depend on the batch either: sequences share a forward pass only where no kernel adds in an order
/// that depends on the number of rows, and else follow each other. On GPUs a batch always has batch_size columns, so
/// that the bits depend on that number alone.
class Generator {
 public:
  /// @param gpu_ranks  null where ranks have no GPU each
  Generator(const Context& ctx, const Model& model, const GpuRanks* gpu_ranks = nullptr)
      : ctx_(ctx), model_(model), gpu_ranks_(gpu_ranks) {}

  /// @throw DataError for an empty or too long prompt or a token outside of the vocabulary: see require_prompt().
  std::vector<Continuation> generate_all(std::span<const std::vector<TokenId>> prompts, const GenerateOptions& options,
                                         const GenerateHooks& hooks) const;
  /// Continues one prompt, number 0.
  /// @param on_token  called with each new token as soon as it is known; may be empty.
  /// @return the new tokens.
  std::vector<TokenId> generate(const std::vector<TokenId>& prompt, const GenerateOptions& options,
                                const std::function<void(TokenId)>& on_token) const;

 private:
  Context ctx_;
  const Model& model_;
  const GpuRanks* gpu_ranks_;
};

/// @throw DataError for a prompt that a model with these numbers of positions and ids cannot continue.
void require_prompt(std::span<const TokenId> prompt, int64_t max_sequence_length, int64_t vocab_size);

}  // namespace megatron
