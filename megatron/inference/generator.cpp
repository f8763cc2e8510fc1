#include "megatron/inference/generator.h"

#include <algorithm>

#include "megatron/core/copy.h"
#include "megatron/kernels/cpu/matmul_library.h"
#include "megatron/transformer/cached_sequences.h"

namespace megatron {
namespace {

/// Says whether a sequence's logits have the same bits whatever sequences share its forward pass. oneDNN's kernels for
/// experts and for absorbed heads, whose weights are not transposed, depend on the number of rows, and experts that
/// drop tokens on the other sequences.
bool columns_are_independent(const Device& device, const TransformerConfig& config) {
  if (device.kind() == DeviceKind::kCuda || config.moe || config.mla) return false;
  return config.params_dtype == DType::kFloat64 || kernels::library_rows_are_independent(config.params_dtype);
}

/// A place in the batch, and in the caches.
struct Slot {
  int64_t prompt = -1;     // number of the prompt that has it; -1: free
  int64_t num_cached = 0;  // tokens that the caches have
  TokenId next = 0;        // the token behind them
  bool is_free() const { return prompt < 0; }
};

/// The continuation of all prompts.
class BatchedGeneration {
 public:
  BatchedGeneration(const Context& ctx, const Model& model, const GpuRanks* gpu_ranks,
                    std::span<const std::vector<TokenId>> prompts, const GenerateOptions& options,
                    const GenerateHooks& hooks)
      : ctx_(ctx), model_(model), gpu_ranks_(gpu_ranks), prompts_(prompts), options_(options), hooks_(hooks) {
    require<ConfigError>(options.batch_size >= 1, "[generate] a batch of {} prompts is not possible: give 1 or more.",
                         options.batch_size);
    int64_t max_rows = 0;
    for (const std::vector<TokenId>& prompt : prompts) {
      require_prompt(prompt, model.config().max_sequence_length, model.config().vocab_size);
      max_rows = std::max(max_rows, std::ssize(prompt) + num_new_tokens(prompt));
    }
    const bool is_fixed = ctx.device.kind() == DeviceKind::kCuda;
    slots_.resize(
        static_cast<size_t>(is_fixed ? options.batch_size : std::min(options.batch_size, std::ssize(prompts))));
    states_ = model.make_states(ctx, {.max_rows = max_rows, .b = std::ssize(slots_)});
    continuations_.resize(prompts.size());
  }

  std::vector<Continuation> run() {
    while (fill_slots()) step();
    return std::move(continuations_);
  }

 private:
  int64_t num_new_tokens(const std::vector<TokenId>& prompt) const {
    return std::min(options_.max_new_tokens, model_.config().max_sequence_length - std::ssize(prompt));
  }

  /// Begins further prompts in free slots. @return whether any slot has one
  bool fill_slots() {
    bool has_work = false;
    for (size_t i = 0; i < slots_.size(); ++i) {
      while (slots_[i].is_free() && next_prompt_ < std::ssize(prompts_)) begin(i, next_prompt_++);
      has_work |= !slots_[i].is_free();
    }
    return has_work;
  }

  void begin(size_t slot, int64_t number) {
    const std::vector<TokenId>& prompt = prompts_[static_cast<size_t>(number)];
    slots_[slot] = {.prompt = number, .num_cached = std::ssize(prompt)};
    continue_columns(static_cast<int64_t>(slot), {0});
    const Tensor logits = forward(prompt, SequenceLayout::uniform(ctx_, {.s = std::ssize(prompt), .b = 1}));
    if (options_.scores_prompt)
      for (size_t i = 1; i < prompt.size(); ++i)
        continuation(slot).prompt.push_back(
            score_token(rows_of(logits, static_cast<int64_t>(i) - 1).front(), prompt[i], options_.num_top));
    if (num_new_tokens(prompt) == 0) return end(slot, FinishReason::kLength);
    take_token(slot, rows_of(logits, std::ssize(prompt) - 1).front());
  }

  /// One more token in every slot that has a prompt.
  void step() {
    const auto num_slots = std::ssize(slots_);
    if (ctx_.device.kind() == DeviceKind::kCuda) return step_columns(0, num_slots);
    if (columns_are_independent(ctx_.device, model_.config())) {
      int64_t end = num_slots;
      while (slots_[static_cast<size_t>(end - 1)].is_free()) --end;
      return step_columns(0, end);
    }
    for (int64_t i = 0; i < num_slots; ++i)
      if (!slots_[static_cast<size_t>(i)].is_free()) step_columns(i, 1);
  }

  /// Free slots among the columns take part with some token, which a later prompt overwrites in the caches.
  void step_columns(int64_t first, int64_t count) {
    std::vector<TokenId> tokens;
    std::vector<int64_t> num_cached;
    for (int64_t i = first; i < first + count; ++i) {
      Slot& slot = slots_[static_cast<size_t>(i)];
      tokens.push_back(slot.is_free() ? 0 : slot.next);
      num_cached.push_back(slot.is_free() ? 0 : slot.num_cached++);
    }
    continue_columns(first, num_cached);
    const std::vector<std::vector<double>> rows = rows_of(forward(tokens, layout_behind(num_cached)), 0);
    for (int64_t i = 0; i < count; ++i) {
      const auto slot = static_cast<size_t>(first + i);
      if (!slots_[slot].is_free()) take_token(slot, rows[static_cast<size_t>(i)]);
    }
  }

  /// The columns of the next forward pass. One sequence alone needs no choice, so that its states may be of any kind.
  void continue_columns(int64_t first, const std::vector<int64_t>& num_cached) const {
    if (slots_.size() > 1 || prompts_.size() > 1) continue_sequences(states_, first, num_cached);
  }

  /// One row a column, behind `num_cached[column]` rows that the caches have.
  SequenceLayout layout_behind(const std::vector<int64_t>& num_cached) const {
    std::vector<SequenceSpan> spans;
    std::vector<int32_t> positions;
    for (const int64_t count : num_cached) {
      const auto before = static_cast<int32_t>(count);
      spans.push_back({.batch = static_cast<int32_t>(spans.size()),
                       .query_begin = 0,
                       .query_length = 1,
                       .key_begin = 0,
                       .key_length = before + 1,
                       .query_offset = before});
      positions.push_back(before);
    }
    return SequenceLayout::from_spans(ctx_, {.s = 1, .b = std::ssize(num_cached)}, spans, positions);
  }

  void take_token(size_t slot, std::span<const double> logits) {
    Slot& own = slots_[slot];
    const RandomKey key = RandomKey::from_seed(options_.seed).at("generate").at(own.prompt);
    const auto token = static_cast<TokenId>(sample_token(logits, options_.sampling, key, own.num_cached));
    if (token == options_.stop_token) return end(slot, FinishReason::kEod);
    std::vector<ScoredToken>& added = continuation(slot).added;
    added.push_back(options_.scores_tokens ? score_token(logits, token, options_.num_top) : ScoredToken{.id = token});
    if (hooks_.on_token && !hooks_.on_token(own.prompt, token)) return end(slot, FinishReason::kStop);
    if (std::ssize(added) == num_new_tokens(prompts_[static_cast<size_t>(own.prompt)]))
      return end(slot, FinishReason::kLength);
    own.next = token;
  }

  void end(size_t slot, FinishReason reason) {
    continuation(slot).reason = reason;
    if (hooks_.on_end) hooks_.on_end(slots_[slot].prompt, continuation(slot));
    slots_[slot] = {};
  }

  Continuation& continuation(size_t slot) { return continuations_[static_cast<size_t>(slots_[slot].prompt)]; }

  /// @param tokens  [s, b]. @return logits [s, b, padded vocabulary]
  Tensor forward(std::span<const TokenId> tokens, const SequenceLayout& layout) {
    Tensor ids = ctx_.empty("generate.tokens", {layout.s(), layout.b()}, DType::kInt32, MemoryUse::kData);
    write_values(ctx_.device, tokens, ids);
    return model_.logits(ctx_, ids, layout, &states_);
  }

  /// The logits of all columns in one row, without those of ids that pad the vocabulary.
  std::vector<std::vector<double>> rows_of(const Tensor& logits, int64_t row) const {
    std::vector<std::vector<double>> rows(static_cast<size_t>(logits.size(1)));
    dispatch_floating(logits.dtype(), [&]<class T>() {
      const std::vector<T> values = read_values<T>(ctx_.device, logits.slice(0, row, 1));
      if (gpu_ranks_) gpu_ranks_->throw_if_failed();
      auto begin = values.begin();
      for (std::vector<double>& column : rows) {
        std::transform(begin, begin + model_.config().vocab_size, std::back_inserter(column),
                       [](T value) { return static_cast<double>(value); });
        begin += logits.size(2);
      }
    });
    return rows;
  }

  Context ctx_;
  const Model& model_;
  const GpuRanks* gpu_ranks_;
  std::span<const std::vector<TokenId>> prompts_;
  const GenerateOptions& options_;
  const GenerateHooks& hooks_;
  std::vector<Slot> slots_;
  LayerStates states_;
  std::vector<Continuation> continuations_;
  int64_t next_prompt_ = 0;
};

}  // namespace

void require_prompt(std::span<const TokenId> prompt, int64_t max_sequence_length, int64_t vocab_size) {
  const int64_t length = std::ssize(prompt);
  require<DataError>(length > 0, "[generate] the prompt has no tokens. Give at least one character.");
  require<DataError>(length < max_sequence_length,
                     "[generate] the prompt has {} tokens, the model sees at most {}. Shorten the prompt.", length,
                     max_sequence_length);
  for (const TokenId id : prompt)
    require<DataError>(id >= 0 && id < vocab_size,
                       "[generate] token {} is not in the model's vocabulary of {}. The tokenizer is not the model's.",
                       id, vocab_size);
}

std::vector<Continuation> Generator::generate_all(std::span<const std::vector<TokenId>> prompts,
                                                  const GenerateOptions& options, const GenerateHooks& hooks) const {
  if (prompts.empty()) return {};
  return BatchedGeneration(ctx_, model_, gpu_ranks_, prompts, options, hooks).run();
}

std::vector<TokenId> Generator::generate(const std::vector<TokenId>& prompt, const GenerateOptions& options,
                                         const std::function<void(TokenId)>& on_token) const {
  const GenerateHooks hooks{.on_token =
                                [&](int64_t, TokenId id) {
                                  if (on_token) on_token(id);
                                  return true;
                                },
                            .on_end = {}};
  const std::vector<Continuation> continuations = generate_all({&prompt, 1}, options, hooks);
  std::vector<TokenId> tokens;
  for (const ScoredToken& token : continuations.front().added) tokens.push_back(token.id);
  return tokens;
}

}  // namespace megatron
