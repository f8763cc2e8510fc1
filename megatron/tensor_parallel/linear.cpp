#include "megatron/tensor_parallel/linear.h"

#include "megatron/ops/linear.h"
#include "megatron/ops/rows.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

struct ParallelLinearNode final : Node {
  ParallelLinearNode(Parameter& weight, Parameter* bias, const ProcessGroup& group, LinearCommunication communication)
      : weight(weight), bias(bias), group(group), communication(communication) {}

  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor dy = grad_out[0];
    if (communication == LinearCommunication::kScatterOutput) dy = gather_rows_of_ranks(b.ctx, group, dy, "linear.dy");
    const bool has_weight = !uses.in_w.empty();
    if (gathers_input() && b.phase == Phase::kBW) gathered = start_gather(b.ctx, group, saved_x.get(b.ctx), "linear.x");
    if (b.wanted(0)) grad_in[0] = input_gradient(b.ctx, dy);
    if (has_weight) saved_dy = SavedTensor(b.ctx, dy, SavePolicy::kKeep);
  }

  Tensor input_gradient(const Context& ctx, const Tensor& dy) {
    Tensor dx = linear_dgrad(ctx, dy, weight.acquire(ctx).view());
    if (communication == LinearCommunication::kCopyInput)
      reduction = start_all_reduce(group, dx, ReduceOp::kSum, "linear.dx");
    if (communication != LinearCommunication::kGatherInput) return dx;
    Pending scattered = start_reduce_scatter(ctx, group, dx, "linear.dx");
    reduction = std::move(scattered.work);
    return scattered.tensor;
  }

  void backward_weight(BackwardContext& b) override {
    Tensor x = saved_x.get(b.ctx);
    if (gathers_input()) {
      if (!gathered.tensor.defined()) gathered = start_gather(b.ctx, group, x, "linear.x");
      gathered.work.wait();
      x = std::move(gathered.tensor);
    }
    linear_wgrad(b.ctx, saved_dy.get(b.ctx), x, weight, bias);
    saved_dy.drop();
    saved_x.drop();
  }

  void finish_input(BackwardContext&) override { reduction.wait(); }

  /// For W; the gradient of a bias alone needs no x.
  bool gathers_input() const { return communication == LinearCommunication::kGatherInput && weight.is_trainable(); }

  Parameter& weight;
  Parameter* bias;
  ProcessGroup group;
  LinearCommunication communication;
  SavedTensor saved_x, saved_dy;
  Pending gathered;
  Work reduction;
};

}  // namespace

Tensor linear_with_communication(Context& ctx, const Tensor& x, Parameter& weight, Parameter* bias,
                                 const ProcessGroup& group, LinearCommunication communication) {
  if (group.size() == 1) return linear(ctx, x, weight, bias);
  const bool is_row_cut =
      communication == LinearCommunication::kReduceOutput || communication == LinearCommunication::kScatterOutput;
  require(!(is_row_cut && bias), "[linear] the bias of a row-parallel layer is added after the reduction.");
  Tensor y;
  {
    const WeightLease weight_lease = weight.acquire(ctx);
    const OptionalLease bias_lease(ctx, bias);
    const Tensor input =
        communication == LinearCommunication::kGatherInput ? gather_rows_of_ranks(ctx, group, x, "linear.x") : x;
    y = linear_forward(ctx, input, weight_lease.view(), bias_lease.view());
  }
  if (communication == LinearCommunication::kReduceOutput)
    start_all_reduce(group, y, ReduceOp::kSum, "linear.y").wait();
  if (communication == LinearCommunication::kScatterOutput) {
    Pending scattered = start_reduce_scatter(ctx, group, y, "linear.y");
    scattered.work.wait();
    y = std::move(scattered.tensor);
  }
  record(ctx, {.in_b = {}, .in_w = {&weight, bias}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<ParallelLinearNode>(weight, bias, group, communication);
    if (weight.is_trainable()) node->saved_x = SavedTensor(ctx, x);
    return node;
  });
  return y;
}

}  // namespace megatron
