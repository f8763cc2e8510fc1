#include "megatron/ops/embedding.h"

#include "megatron/kernels/embedding.h"
namespace megatron {
namespace {

struct EmbeddingNode final : Node {
  EmbeddingNode(Parameter& word, Parameter* position, const SequenceLayout& layout)
      : word(word), position(position), layout(layout) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor>) override {
    saved_dy = SavedTensor(b.ctx, grad_out[0], SavePolicy::kKeep);
  }
  void backward_weight(BackwardContext& b) override {
    const Tensor dy = saved_dy.get(b.ctx), ids = saved_ids.get(b.ctx);
    embedding_wgrad(b.ctx, dy, {.ids = ids.view(), .layout = layout.view(), .first_id = first_id}, &word);
    embedding_wgrad(b.ctx, dy, {.ids = {}, .layout = layout.view(), .first_id = 0}, position);
    saved_dy.drop();
    saved_ids.drop();
  }
  Parameter& word;
  Parameter* position;
  SequenceLayout layout;
  int64_t first_id = 0;
  SavedTensor saved_dy, saved_ids;
};

}  // namespace

void embedding_forward(const Context& ctx, const kernels::EmbeddingIndex& index, Parameter& table, Tensor& y,
                       bool accumulate) {
  const WeightLease lease = table.acquire(ctx);
  launch(ctx, {.shape = &y.shape()}, [&](auto& stream) {
    kernels::embedding_forward(stream,
                               {.index = index, .table = lease.view(), .y = y.view(), .accumulate = accumulate});
  });
}

void embedding_wgrad(const Context& ctx, const Tensor& dy, const kernels::EmbeddingIndex& index, Parameter* table) {
  if (!table || !table->is_trainable()) return;
  const GradTarget target = table->grad_target(ctx);
  Tensor workspace =
      ctx.workspace("embedding.workspace", kernels::embedding_backward_workspace_bytes(dy.size(0) * dy.size(1)));
  launch(ctx, {.shape = &dy.shape()}, [&](auto& stream) {
    kernels::embedding_backward(stream, {.index = index,
                                         .dy = dy.view(),
                                         .dtable = target.view,
                                         .accumulate = target.accumulate,
                                         .workspace = workspace.view()});
  });
}

void check_embedding(const Tensor& ids, int64_t h, const Parameter* position, const SequenceLayout& layout) {
  require<ShapeError>(ids.shape() == Shape{layout.s(), layout.b()},
                      "[embedding] ids of shape {} for {} rows in {} columns.", ids.shape(), layout.s(), layout.b());
  require<ShapeError>(!position || (position->shape()[1] == h && layout.num_positions() <= position->shape()[0]),
                      "[embedding] {} has shape {}; {} positions of {} elements are needed.",
                      position ? position->name() : "", position ? position->shape() : Shape(), layout.num_positions(),
                      h);
}

void check_ids_on_cpu(const Context& ctx, const Tensor& ids, int64_t num_ids) {
  if (ctx.device.is_meta() || ctx.device.backend() != DeviceKind::kCpu) return;
  const ArenaAccess access(ctx.device.arena);
  const ConstView view = ids.view();
  const auto check = [&]<class Id>(const Id* data) {
    for (int64_t s = 0; s < view.shape[0]; ++s)
      for (int64_t b = 0; b < view.shape[1]; ++b) {
        const int64_t id = data[s * view.strides[0] + b * view.strides[1]];
        if (id >= 0 && id < num_ids) continue;
        throw DataError(fmt::format(
            "[embedding] the token id {} at position {} of sample {} of a micro-batch is not in the vocabulary of {} "
            "tokens. Encode the text with the tokenizer of the model.",
            id, s, b, num_ids));
      }
  };
  if (ids.dtype() == DType::kInt32)
    check(view.as<int32_t>());
  else
    check(view.as<int64_t>());
}

Tensor embedding(Context& ctx, const Tensor& ids, Parameter& word, int64_t first_id, Parameter* position,
                 const SequenceLayout& layout) {
  const int64_t h = word.shape()[1];
  check_embedding(ids, h, position, layout);
  Tensor y = ctx.empty("embedding.y", {ids.size(0), ids.size(1), h}, word.dtype());
  embedding_forward(ctx, {.ids = ids.view(), .layout = layout.view(), .first_id = first_id}, word, y, false);
  if (position) embedding_forward(ctx, {.ids = {}, .layout = layout.view(), .first_id = 0}, *position, y, true);
  record(ctx, {.in_b = {}, .in_w = {&word, position}}, {}, {&y}, [&] {
    auto node = std::make_unique<EmbeddingNode>(word, position, layout);
    node->first_id = first_id;
    node->saved_ids = SavedTensor(ctx, ids, SavePolicy::kKeep);
    return node;
  });
  return y;
}

}  // namespace megatron
