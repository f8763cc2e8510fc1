#include "megatron/ops/masked_sum.h"

#include "megatron/kernels/elementwise.h"
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

struct AttachLossNode final : Node {
  explicit AttachLossNode(double factor) : factor(factor) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    grad_in[0] = grad_out[0];
    Tensor scaled = b.ctx.empty_like("attach_loss.d_other", grad_out[0]);
    launch(b.ctx, {.name = "scale"}, [&](auto& stream) {
      kernels::scale(stream, {.x = grad_out[0].view(), .y = scaled.view(), .factor = factor});
    });
    grad_in[1] = std::move(scaled);
  }
  double factor;
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

MeanLossWeights mean_loss_weights(const Context& ctx, const Tensor& mask, const Tensor& part, const Tensor& weight) {
  require<ShapeError>(mask.shape() == part.shape(), "[mean_loss_weights] masks of shapes {} and {}.", mask.shape(),
                      part.shape());
  MeanLossWeights weights{ctx.empty("mean_loss_weights.mean", {1}, DType::kFloat64),
                          ctx.empty("mean_loss_weights.share", {1}, DType::kFloat64)};
  launch(ctx, [&](auto& stream) {
    kernels::mean_loss_weights(stream, {.mask = mask.view(),
                                        .part = part.view(),
                                        .weight = weight.view(),
                                        .mean = weights.mean.view(),
                                        .share = weights.share.view()});
  });
  return weights;
}

Tensor attach_loss(Context& ctx, const Tensor& loss, const Tensor& other, double factor) {
  Tensor y = loss.detach();
  record(ctx, {}, {loss.slot, other.slot}, {&y}, [&] { return std::make_unique<AttachLossNode>(factor); });
  return y;
}

}  // namespace megatron
