#include "megatron/tensor_parallel/lm_head_loss.h"

#include <algorithm>

#include "megatron/kernels/cross_entropy.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/soft_cap.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/rows.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

/// A run of positions, with all columns.
struct Positions {
  int64_t begin, length;
  Tensor of(const Tensor& x) const { return x.slice(0, begin, length); }
};

template <class F>
void for_each_chunk(const LmHeadChunks& chunks, const Positions& all, F&& f) {
  for (int64_t begin = 0, index = 0; begin < all.length; begin += chunks.length, ++index)
    f(static_cast<size_t>(index), Positions{all.begin + begin, std::min(chunks.length, all.length - begin)});
}

kernels::VocabularyColumns columns_of(const LmHeadLossOptions& options, const Parameter& weight) {
  return {.first_id = weight.boxes().front().global.offsets[0], .vocab_size = options.vocab_size};
}

/// Operands and results of a forward; hidden holds all positions.
struct Forward {
  Forward(const Context& ctx, const LmHeadLossOptions& options, Parameter& weight, const Tensor& labels, DType dtype)
      : ctx(ctx),
        options(options),
        columns(columns_of(options, weight)),
        chunks(labels.size(0), labels.size(1), weight.shape()[0], options.most_chunk_logits),
        lease(weight.acquire(ctx)),
        labels(labels),
        loss(ctx.empty("lm_head.loss", labels.shape(), dtype)),
        max(ctx.empty("lm_head.max", labels.shape(), dtype)),
        sum_exp(ctx.empty("lm_head.sum_exp", labels.shape(), dtype)) {}

  void run_chunk_alone(const Tensor& hidden, const Positions& chunk);
  void run_over_ranks(const Tensor& hidden, const Positions& all);
  void add_up_over_ranks(const Positions& all);
  Tensor logits_of(const Tensor& hidden, const Positions& chunk) const {
    Tensor logits = linear_forward(ctx, chunk.of(hidden), lease.view(), {});
    if (options.soft_cap > 0)
      launch(ctx, {.name = "soft_cap", .shape = &logits.shape()}, [&](auto& stream) {
        kernels::soft_cap_forward(stream,
                                  {.x = std::as_const(logits).view(), .y = logits.view(), .cap = options.soft_cap});
      });
    return logits;
  }

  const Context& ctx;
  const LmHeadLossOptions& options;
  kernels::VocabularyColumns columns;
  LmHeadChunks chunks;
  WeightLease lease;
  Tensor labels, loss, max, sum_exp;
  std::vector<Tensor> kept;  // logits of the chunks
};

/// The whole vocabulary is here.
void Forward::run_chunk_alone(const Tensor& hidden, const Positions& chunk) {
  Tensor logits = logits_of(hidden, chunk);
  launch(ctx, {.name = "cross_entropy", .shape = &logits.shape()}, [&](auto& stream) {
    kernels::cross_entropy_forward(stream, {.logits = std::as_const(logits).view(),
                                            .columns = columns,
                                            .targets = chunk.of(labels).view(),
                                            .loss_mask = {},
                                            .label_smoothing = options.label_smoothing,
                                            .max = chunk.of(max).view(),
                                            .sum_exp = chunk.of(sum_exp).view(),
                                            .loss = chunk.of(loss).view()});
  });
  if (ctx.tape) kept.push_back(std::move(logits));
}

/// One maximum and one sum over the ranks for all positions.
void Forward::run_over_ranks(const Tensor& hidden, const Positions& all) {
  for_each_chunk(chunks, all, [&](size_t, const Positions& chunk) {
    kept.push_back(logits_of(hidden, chunk));
    launch(ctx, {.name = "cross_entropy", .shape = &kept.back().shape()}, [&](auto& stream) {
      kernels::cross_entropy_max(
          stream, {.logits = std::as_const(kept.back()).view(), .columns = columns, .max = chunk.of(max).view()});
    });
  });
  start_all_reduce(options.group, max, ReduceOp::kMax, "lm_head.max").wait();
  add_up_over_ranks(all);
}

void Forward::add_up_over_ranks(const Positions& all) {
  const bool smooths = options.label_smoothing != 0;
  Tensor sums =
      ctx.empty("lm_head.sums", {smooths ? 3 : 2, all.length, labels.size(1)}, max.dtype(), MemoryUse::kCommunication);
  const auto sum = [&](int64_t index, const Positions& part) {
    return part.of(sums.slice(0, index, 1).reshape({all.length, labels.size(1)}));
  };
  for_each_chunk(chunks, all, [&](size_t index, const Positions& chunk) {
    launch(ctx, {.name = "cross_entropy", .shape = &kept[index].shape()}, [&](auto& stream) {
      kernels::cross_entropy_sums(stream, {.logits = std::as_const(kept[index]).view(),
                                           .columns = columns,
                                           .targets = chunk.of(labels).view(),
                                           .max = chunk.of(max).view(),
                                           .sum_exp = sum(0, chunk).view(),
                                           .target = sum(1, chunk).view(),
                                           .total = smooths ? sum(2, chunk).view() : View{}});
    });
  });
  start_all_reduce(options.group, sums, ReduceOp::kSum, "lm_head.sums").wait();
  launch(ctx, {.name = "cross_entropy", .shape = &sums.shape()}, [&](auto& stream) {
    kernels::copy(stream, {.x = sum(0, all).view(), .y = sum_exp.view()});
    kernels::cross_entropy_loss(stream, {.sum_exp = sum(0, all).view(),
                                         .target = sum(1, all).view(),
                                         .total = smooths ? sum(2, all).view() : View{},
                                         .loss_mask = {},
                                         .label_smoothing = options.label_smoothing,
                                         .vocab_size = options.vocab_size,
                                         .loss = loss.view()});
  });
}

struct LmHeadLossNode final : Node {
  LmHeadLossNode(Parameter& weight, const LmHeadLossOptions& options, const LmHeadChunks& cut)
      : weight(weight), options(options), cut(cut) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override;
  void backward_weight(BackwardContext& b) override;
  void finish_input(BackwardContext&) override { reduction.wait(); }
  void to_gradient(const Context& ctx, const Tensor& d_loss, const Positions& chunk, Tensor& logits);
  Tensor whole_hidden(const Context& ctx);
  Tensor reduced(const Context& ctx, Tensor d_hidden);

  Parameter& weight;
  LmHeadLossOptions options;
  LmHeadChunks cut;
  Shape shape;  // of the hidden states of all positions
  SavedTensor saved_hidden, saved_labels, saved_max, saved_sum_exp;
  std::vector<Tensor> chunks;  // logits, from B on their gradients; released one by one in W
  Pending gathered;
  Work reduction;
};

/// Overwrites the logits of a chunk with their gradient.
void LmHeadLossNode::to_gradient(const Context& ctx, const Tensor& d_loss, const Positions& chunk, Tensor& logits) {
  const Tensor labels = saved_labels.get(ctx), max = saved_max.get(ctx), sum_exp = saved_sum_exp.get(ctx);
  const bool is_capped = options.soft_cap > 0;
  Tensor d_logits = is_capped ? ctx.empty_like("lm_head.d_logits", logits) : logits;
  launch(ctx, {.name = "cross_entropy", .shape = &logits.shape()}, [&](auto& stream) {
    kernels::cross_entropy_backward(stream, {.logits = std::as_const(logits).view(),
                                             .columns = columns_of(options, weight),
                                             .targets = chunk.of(labels).view(),
                                             .max = chunk.of(max).view(),
                                             .sum_exp = chunk.of(sum_exp).view(),
                                             .loss_mask = {},
                                             .d_loss = chunk.of(d_loss).view(),
                                             .label_smoothing = options.label_smoothing,
                                             .d_logits = d_logits.view()});
  });
  if (!is_capped) return;
  launch(ctx, {.name = "soft_cap", .shape = &logits.shape()}, [&](auto& stream) {
    kernels::soft_cap_backward(stream, {.y = std::as_const(logits).view(),
                                        .dy = std::as_const(d_logits).view(),
                                        .dx = logits.view(),
                                        .cap = options.soft_cap});
  });
}

Tensor LmHeadLossNode::whole_hidden(const Context& ctx) {
  Tensor hidden = saved_hidden.get(ctx);
  if (!options.sequence_parallel) return hidden;
  if (!gathered.tensor.defined()) gathered = start_gather(ctx, options.group, hidden, "lm_head.hidden");
  gathered.work.wait();
  return gathered.tensor;
}

/// The sum of d_hidden over the ranks, still on its way.
Tensor LmHeadLossNode::reduced(const Context& ctx, Tensor d_hidden) {
  if (!options.sequence_parallel) {
    reduction = start_all_reduce(options.group, d_hidden, ReduceOp::kSum, "lm_head.d_hidden");
    return d_hidden;
  }
  Pending scattered = start_reduce_scatter(ctx, options.group, d_hidden, "lm_head.d_hidden");
  reduction = std::move(scattered.work);
  return scattered.tensor;
}

void LmHeadLossNode::backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) {
  const bool has_weight = !uses.in_w.empty();
  const Tensor& d_loss = grad_out[0];
  if (options.sequence_parallel && has_weight && b.phase == Phase::kBW)
    gathered = start_gather(b.ctx, options.group, saved_hidden.get(b.ctx), "lm_head.hidden");
  Tensor d_hidden = b.wanted(0) ? b.ctx.empty("lm_head.d_hidden", shape, weight.dtype()) : Tensor();
  const WeightLease lease = weight.acquire(b.ctx);
  for_each_chunk(cut, {0, shape[0]}, [&](size_t index, const Positions& chunk) {
    to_gradient(b.ctx, d_loss, chunk, chunks[index]);
    if (b.wanted(0)) linear_dgrad_into(b.ctx, chunks[index], lease.view(), chunk.of(d_hidden));
    if (!has_weight) chunks[index] = {};
  });
  for (SavedTensor* saved : {&saved_labels, &saved_max, &saved_sum_exp}) saved->drop();
  if (b.wanted(0)) grad_in[0] = reduced(b.ctx, std::move(d_hidden));
}

void LmHeadLossNode::backward_weight(BackwardContext& b) {
  const Tensor hidden = whole_hidden(b.ctx);
  for_each_chunk(cut, {0, shape[0]}, [&](size_t index, const Positions& chunk) {
    linear_wgrad(b.ctx, chunks[index], chunk.of(hidden), weight, nullptr);
    chunks[index] = {};
  });
  saved_hidden.drop();
  gathered = {};
}

/// @return the shape of the hidden states of all positions.
Shape require_fitting(const Tensor& hidden, const Parameter& weight, const Tensor& labels,
                      const LmHeadLossOptions& options) {
  Shape shape = hidden.shape();
  if (options.sequence_parallel) shape[0] *= options.group.size();
  require<ShapeError>(labels.shape() == Shape{shape[0], shape[1]},
                      "[lm_head_loss] labels of shape {} for hidden states of shape {}.", labels.shape(), shape);
  const int64_t num_rows = weight.shape()[0] * options.group.size();
  require<ShapeError>(options.vocab_size <= num_rows, "[lm_head_loss] a vocabulary of {} and {} rows of weights.",
                      options.vocab_size, num_rows);
  return shape;
}

}  // namespace

/// Chunks have as many tokens as pay: each chunk reads and writes the gradient of the weight in fp32 and reads the
/// weight twice. With 128256 rows of 4096 these are 6 GB, which take a GPU as long as the three products of some 400
/// tokens. One length for all: on an H200 products of 2304 tokens with 151936 rows of 896 run at 601 TFLOP/s, those of
/// 14080 at 648.
LmHeadChunks::LmHeadChunks(int64_t positions, int64_t num_columns, int64_t num_rows, int64_t most_logits) {
  constexpr int64_t kMultiple = 128;
  const auto ceil_of = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  int64_t tokens = most_logits / std::max<int64_t>(1, num_rows);
  if (tokens > kMultiple) tokens = tokens / kMultiple * kMultiple;
  const int64_t most = std::max<int64_t>(1, tokens / std::max<int64_t>(1, num_columns));
  length = std::max<int64_t>(1, ceil_of(positions, std::max<int64_t>(1, ceil_of(positions, most))));
  num = ceil_of(positions, length);
}

Tensor lm_head_loss(Context& ctx, const Tensor& hidden, Parameter& weight, const Tensor& labels,
                    const LmHeadLossOptions& given) {
  LmHeadLossOptions options = given;
  const bool is_alone = options.group.size() == 1;
  options.sequence_parallel = given.sequence_parallel && !is_alone;
  const Shape shape = require_fitting(hidden, weight, labels, options);
  Forward forward(ctx, options, weight, labels, statistics_dtype(hidden.dtype()));
  {
    const Tensor rows = options.sequence_parallel
                            ? gather_rows_of_ranks(ctx, options.group, hidden.detach(), "lm_head.hidden")
                            : hidden.detach();
    const Positions all{0, shape[0]};
    if (is_alone)
      for_each_chunk(forward.chunks, all,
                     [&](size_t, const Positions& chunk) { forward.run_chunk_alone(rows, chunk); });
    else
      forward.run_over_ranks(rows, all);
  }
  Tensor loss = std::move(forward.loss);
  record(ctx, {.in_b = {}, .in_w = {&weight}}, {hidden.slot}, {&loss}, [&] {
    auto node = std::make_unique<LmHeadLossNode>(weight, options, forward.chunks);
    node->shape = shape;
    node->saved_hidden = SavedTensor(ctx, hidden);
    node->saved_labels = SavedTensor(ctx, labels, SavePolicy::kKeep);
    node->saved_max = SavedTensor(ctx, forward.max);
    node->saved_sum_exp = SavedTensor(ctx, forward.sum_exp);
    node->chunks = std::move(forward.kept);
    return node;
  });
  return loss;
}

}  // namespace megatron
