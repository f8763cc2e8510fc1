#include "megatron/ops/masked_sum.h"

#include "megatron/kernels/cuda/masked_sum.h"
#include "megatron/kernels/masked_sum.h"

namespace megatron {
namespace {

struct MaskedSumNode final : Node {
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    const Tensor mask = saved_mask.get(b.ctx), weight = saved_weight.get(b.ctx);
    Tensor d_loss = b.ctx.empty("masked_sum.d_loss", shape, dtype);
    launch(b.ctx, [&](auto& stream) {
      kernels::masked_sum_backward(
          stream, {.mask = mask.view(), .d_sum = grad_out[0].view(), .weight = weight.view(), .d_loss = d_loss.view()});
    });
    grad_in[0] = std::move(d_loss);
  }
  Shape shape;
  DType dtype = DType::kFloat32;
  SavedTensor saved_mask, saved_weight;
};

}  // namespace

Tensor masked_sum(Context& ctx, const Tensor& loss, const Tensor& mask, const Tensor& weight) {
  require<ShapeError>(loss.shape() == mask.shape(), "[masked_sum] losses of shape {} and a mask of shape {}.",
                      loss.shape(), mask.shape());
  Tensor sum = ctx.empty("masked_sum.sum", {1}, DType::kFloat64);
  launch(ctx, [&](auto& stream) {
    kernels::masked_sum_forward(stream,
                                {.loss = loss.view(), .mask = mask.view(), .weight = weight.view(), .sum = sum.view()});
  });
  record(ctx, {}, {loss.slot}, {&sum}, [&] {
    auto node = std::make_unique<MaskedSumNode>();
    node->shape = loss.shape();
    node->dtype = loss.dtype();
    node->saved_mask = SavedTensor(ctx, mask, SavePolicy::kKeep);
    node->saved_weight = SavedTensor(ctx, weight, SavePolicy::kKeep);
    return node;
  });
  return sum;
}

}  // namespace megatron
