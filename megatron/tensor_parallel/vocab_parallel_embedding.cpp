#include "megatron/tensor_parallel/vocab_parallel_embedding.h"

#include "megatron/ops/embedding.h"
#include "megatron/tensor_parallel/collectives.h"
#include "megatron/tensor_parallel/sequence_rows.h"

namespace megatron {
namespace {

struct VocabParallelEmbeddingNode final : Node {
  VocabParallelEmbeddingNode(Parameter& word, Parameter* position, const SequenceLayout& layout,
                             const ProcessGroup& group)
      : word(word), position(position), layout(layout), group(group) {}

  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor>) override {
    saved_dy = SavedTensor(b.ctx, grad_out[0], SavePolicy::kKeep);
  }
  void backward_weight(BackwardContext& b) override {
    Tensor dy = saved_dy.get(b.ctx);
    const Tensor ids = saved_ids.get(b.ctx);
    if (sequence_parallel) dy = gather_rows_of_ranks(b.ctx, group, dy, "embedding.dy");
    embedding_wgrad(b.ctx, dy, {.ids = ids.view(), .layout = layout.view(), .first_id = first_id}, &word);
    embedding_wgrad(b.ctx, dy, {.ids = {}, .layout = layout.view(), .first_id = 0}, position);
    saved_dy.drop();
    saved_ids.drop();
  }

  Parameter& word;
  Parameter* position;
  SequenceLayout layout;
  ProcessGroup group;
  int64_t first_id = 0;
  bool sequence_parallel = false;
  SavedTensor saved_dy, saved_ids;
};

}  // namespace

VocabParallelEmbedding::VocabParallelEmbedding(const Context& ctx, const VocabParallelEmbeddingOptions& options,
                                               const ProcessGroup& group)
    : group_(group), sequence_parallel_(options.sequence_parallel), vocab_size_(options.vocab_size) {
  ShardSpec shard = ShardSpec::cut_by({options.padded_vocab_size, options.hidden_size},
                                      {.sections = {{options.padded_vocab_size, false}}});
  shard.unpadded_rows = options.vocab_size;
  register_parameter(weight_, ctx,
                     {.name = options.name + ".weight",
                      .shard = shard,
                      .dtype = options.dtype,
                      .place = {.tensor = {group.rank(), group.size()}},
                      .stored = options.stored.key.empty() ? StoredName{} : options.stored.with("weight"),
                      .tied = options.tied,
                      .is_embedding_or_output = true,
                      .init_std = options.init_std});
}

Tensor VocabParallelEmbedding::forward(Context& ctx, const Tensor& ids, Parameter* position,
                                       const SequenceLayout& layout) const {
  check_ids_on_cpu(ctx, ids, vocab_size_);
  if (group_.size() == 1) return embedding(ctx, ids, *weight_, 0, position, layout);
  check_embedding(ids, weight_->shape()[1], position, layout);
  const SequenceLayoutView rows = sequence_rows(layout, group_, sequence_parallel_);
  const int64_t first_id = weight_->boxes().front().global.offsets[0];
  Tensor y = ctx.empty("embedding.y", {layout.s(), layout.b(), weight_->shape()[1]}, weight_->dtype());
  embedding_forward(ctx, {.ids = ids.view(), .layout = layout.view(), .first_id = first_id}, *weight_, y, false);
  if (sequence_parallel_) {
    Pending scattered = start_reduce_scatter(ctx, group_, y, "embedding.y");
    scattered.work.wait();
    y = std::move(scattered.tensor);
  } else {
    start_all_reduce(group_, y, ReduceOp::kSum, "embedding.y").wait();
  }
  if (position) embedding_forward(ctx, {.ids = {}, .layout = rows, .first_id = 0}, *position, y, true);
  record(ctx, {.in_b = {}, .in_w = {weight_.get(), position}}, {}, {&y}, [&] {
    auto node = std::make_unique<VocabParallelEmbeddingNode>(*weight_, position, layout, group_);
    node->first_id = first_id;
    node->sequence_parallel = sequence_parallel_;
    node->saved_ids = SavedTensor(ctx, ids, SavePolicy::kKeep);
    return node;
  });
  return y;
}

}  // namespace megatron
