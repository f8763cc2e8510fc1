#include "megatron/ops/lm_head_loss.h"

#include <algorithm>

#include "megatron/kernels/cross_entropy.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/rows.h"

namespace megatron {
namespace {

/// Tokens of a chunk: enough for a full-speed product, few enough that a chunk's logits are not a large share of
/// memory.
constexpr int64_t kChunkTokens = 512;

/// Positions of a chunk, which holds all columns.
int64_t chunk_length(const Shape& hidden) {
  return std::max<int64_t>(1, kChunkTokens / std::max<int64_t>(1, hidden[1]));
}

template <class F>
void for_each_chunk(const Shape& hidden, F&& f) {
  const int64_t length = chunk_length(hidden);
  for (int64_t begin = 0, index = 0; begin < hidden[0]; begin += length, ++index)
    f(static_cast<size_t>(index), begin, std::min(length, hidden[0] - begin));
}

struct LmHeadLossNode final : Node {
  LmHeadLossNode(Parameter& weight, const LmHeadLossOptions& options) : weight(weight), options(options) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override;
  void backward_weight(BackwardContext& b) override;
  void to_gradient(const Context& ctx, const Tensor& d_loss, int64_t begin, int64_t length, Tensor& logits);

  Parameter& weight;
  LmHeadLossOptions options;
  Shape shape;  // of hidden
  SavedTensor saved_hidden, saved_labels, saved_max, saved_sum_exp;
  std::vector<Tensor> chunks;  // logits, from B on their gradients; released one by one in W
};

/// Overwrites the logits of positions [begin, begin + length) with their gradient.
void LmHeadLossNode::to_gradient(const Context& ctx, const Tensor& d_loss, int64_t begin, int64_t length,
                                 Tensor& logits) {
  const Tensor labels = saved_labels.get(ctx), max = saved_max.get(ctx), sum_exp = saved_sum_exp.get(ctx);
  launch(ctx, [&](auto& stream) {
    kernels::cross_entropy_backward(stream, {.logits = std::as_const(logits).view(),
                                             .columns = {.first_id = 0, .vocab_size = options.vocab_size},
                                             .targets = labels.slice(0, begin, length).view(),
                                             .max = max.slice(0, begin, length).view(),
                                             .sum_exp = sum_exp.slice(0, begin, length).view(),
                                             .loss_mask = {},
                                             .d_loss = d_loss.slice(0, begin, length).view(),
                                             .label_smoothing = options.label_smoothing,
                                             .d_logits = logits.view()});
  });
}

void LmHeadLossNode::backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) {
  const Tensor hidden = saved_hidden.get(b.ctx);
  Tensor d_hidden = b.wanted(0) ? b.ctx.empty("lm_head.d_hidden", shape, hidden.dtype()) : Tensor();
  const WeightLease lease = weight.acquire(b.ctx);
  for_each_chunk(shape, [&](size_t index, int64_t begin, int64_t length) {
    if (index == chunks.size())
      chunks.push_back(linear_forward(b.ctx, hidden.slice(0, begin, length), lease.view(), {}));
    to_gradient(b.ctx, grad_out[0], begin, length, chunks[index]);
    if (!b.wanted(0)) return;
    linear_dgrad_into(b.ctx, chunks[index], lease.view(), d_hidden.slice(0, begin, length));
  });
  if (uses.in_w.empty()) chunks.clear();
  for (SavedTensor* saved : {&saved_labels, &saved_max, &saved_sum_exp}) saved->drop();
  grad_in[0] = std::move(d_hidden);
}

void LmHeadLossNode::backward_weight(BackwardContext& b) {
  const Tensor hidden = saved_hidden.get(b.ctx);
  for_each_chunk(shape, [&](size_t index, int64_t begin, int64_t length) {
    linear_wgrad(b.ctx, chunks[index], hidden.slice(0, begin, length), weight, nullptr);
    chunks[index] = {};
  });
  saved_hidden.drop();
}

}  // namespace

Tensor lm_head_loss(Context& ctx, const Tensor& hidden, Parameter& weight, const Tensor& labels,
                    const LmHeadLossOptions& options) {
  const int64_t s = hidden.size(0), b = hidden.size(1);
  require<ShapeError>(labels.shape() == Shape{s, b}, "[lm_head_loss] labels of shape {} for hidden states of shape {}.",
                      labels.shape(), hidden.shape());
  require<ShapeError>(options.vocab_size <= weight.shape()[0],
                      "[lm_head_loss] a vocabulary of {} and {} rows of weights.", options.vocab_size,
                      weight.shape()[0]);
  const DType statistics = statistics_dtype(hidden.dtype());
  Tensor loss = ctx.empty("lm_head.loss", {s, b}, statistics), max = ctx.empty("lm_head.max", {s, b}, statistics);
  Tensor sum_exp = ctx.empty("lm_head.sum_exp", {s, b}, statistics);
  const bool keeps_logits = ctx.tape && !options.recompute_logits;
  std::vector<Tensor> chunks;
  const Tensor rows = hidden.detach();
  {
    const WeightLease lease = weight.acquire(ctx);
    for_each_chunk(hidden.shape(), [&](size_t, int64_t begin, int64_t length) {
      Tensor logits = linear_forward(ctx, rows.slice(0, begin, length), lease.view(), {});
      launch(ctx, [&](auto& stream) {
        kernels::cross_entropy_forward(stream, {.logits = std::as_const(logits).view(),
                                                .columns = {.first_id = 0, .vocab_size = options.vocab_size},
                                                .targets = labels.slice(0, begin, length).view(),
                                                .loss_mask = {},
                                                .label_smoothing = options.label_smoothing,
                                                .max = max.slice(0, begin, length).view(),
                                                .sum_exp = sum_exp.slice(0, begin, length).view(),
                                                .loss = loss.slice(0, begin, length).view()});
      });
      if (keeps_logits) chunks.push_back(std::move(logits));
    });
  }
  record(ctx, {.in_b = {}, .in_w = {&weight}}, {hidden.slot}, {&loss}, [&] {
    auto node = std::make_unique<LmHeadLossNode>(weight, options);
    node->shape = hidden.shape();
    node->saved_hidden = SavedTensor(ctx, hidden);
    node->saved_labels = SavedTensor(ctx, labels, SavePolicy::kKeep);
    node->saved_max = SavedTensor(ctx, max);
    node->saved_sum_exp = SavedTensor(ctx, sum_exp);
    node->chunks = std::move(chunks);
    return node;
  });
  return loss;
}

}  // namespace megatron
