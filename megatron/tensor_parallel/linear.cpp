#include "megatron/tensor_parallel/linear.h"

#include <utility>

#include "megatron/ops/linear.h"
#include "megatron/ops/rows.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

struct ParallelLinearNode final : Node {
  ParallelLinearNode(Parameter& weight, Parameter* bias, const ProcessGroup& group,
                     const LinearCommunicationOptions& options)
      : weight(weight), bias(bias), group(group), communication(options.kind), overlap(options.overlap) {}

  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Tensor dy = grad_out[0];
    const bool is_scattered = communication == LinearCommunication::kScatterOutput;
    const bool gathers_in_parts = is_scattered && b.wanted(0) && overlap.num_gather_splits > 0;
    if (is_scattered && !gathers_in_parts) dy = gather_output_gradient(b, dy);
    const bool has_weight = !uses.in_w.empty();
    if (gathers_input() && b.phase == Phase::kBW) gathered = start_gather(b.ctx, group, saved_x.get(b.ctx), "linear.x");
    if (gathers_in_parts)
      grad_in[0] = gather_and_multiply(b, dy, has_weight);
    else if (b.wanted(0))
      grad_in[0] = input_gradient(b.ctx, dy);
    if (gathers_input() && delays_weight(b)) {
      gathered = start_gather(b.ctx, group, saved_x.get(b.ctx), "linear.x");
      run_delayed_weights(b);
    }
    if (has_weight) saved_dy = SavedTensor(b.ctx, dy, SavePolicy::kKeep);
  }

  Tensor gather_output_gradient(BackwardContext& b, const Tensor& dy) const {
    Pending arriving = start_gather(b.ctx, group, dy, "linear.dy");
    run_delayed_weights(b);
    arriving.work.wait();
    return std::move(arriving.tensor);
  }

  /// Gathers and multiplies for a row cut. @param dy  becomes that of all ranks where W will read it.
  Tensor gather_and_multiply(BackwardContext& b, Tensor& dy, bool has_weight) {
    const Context& ctx = b.ctx;
    const WeightLease lease = weight.acquire(ctx);
    Shape shape = dy.shape();
    shape[0] *= group.size();
    shape[-1] = lease.view().shape[1];
    Tensor dx = ctx.empty("linear.dx", shape, dy.dtype());
    const Tensor own = dy.detach();
    const auto product = [&, is_first = true](const Tensor& rows, Tensor result) mutable {
      linear_dgrad_into(ctx, rows, lease.view(), std::move(result));
      if (std::exchange(is_first, false)) run_delayed_weights(b);  // the next one waits
    };
    multiply_while_gathering(ctx, group, own, overlap.num_gather_splits, "linear.dy", product, dx,
                             has_weight ? &dy : nullptr);
    return dx;
  }

  Tensor input_gradient(const Context& ctx, const Tensor& dy) {
    const WeightLease lease = weight.acquire(ctx);
    if (communication == LinearCommunication::kGatherInput) {
      reduction = multiply_and_scatter(
          ctx, group, dy.detach(), lease.view().shape[1], overlap.num_dgrad_splits, "linear.dx",
          [&](const Tensor& rows, Tensor result) { linear_dgrad_into(ctx, rows, lease.view(), std::move(result)); });
      return std::move(reduction.tensor);
    }
    Tensor dx = linear_dgrad(ctx, dy, lease.view());
    if (communication == LinearCommunication::kCopyInput)
      reduction.works.push_back(start_all_reduce(group, dx, ReduceOp::kSum, "linear.dx"));
    return dx;
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

  bool delays_weight(const BackwardContext& b) const { return overlap.delays_weight_gradient && b.phase == Phase::kB; }
  void run_delayed_weights(BackwardContext& b) const {
    if (delays_weight(b)) b.tape.backward_weight(b.ctx, 0);
  }

  /// For W; the gradient of a bias alone needs no x.
  bool gathers_input() const { return communication == LinearCommunication::kGatherInput && weight.is_trainable(); }

  Parameter& weight;
  Parameter* bias;
  ProcessGroup group;
  LinearCommunication communication;
  TensorCommOverlap overlap;
  SavedTensor saved_x, saved_dy;
  Pending gathered;
  PendingParts reduction;
};

/// y of a column cut, from x of all ranks.
Tensor gathered_forward(const Context& ctx, const Tensor& x, ConstView weight, ConstView bias,
                        const ProcessGroup& group, int64_t num_splits) {
  if (num_splits == 0) return linear_forward(ctx, gather_rows_of_ranks(ctx, group, x, "linear.x"), weight, bias);
  Shape shape = x.shape();
  shape[0] *= group.size();
  shape[-1] = weight.shape[0];
  Tensor y = ctx.empty("linear.y", shape, x.dtype());
  multiply_while_gathering(
      ctx, group, x.detach(), num_splits, "linear.x",
      [&](const Tensor& rows, Tensor result) { linear_forward_into(ctx, rows, weight, bias, std::move(result)); }, y,
      nullptr);
  return y;
}

/// This rank's rows of y of a row cut.
Tensor scattered_forward(const Context& ctx, const Tensor& x, ConstView weight, const ProcessGroup& group,
                         int64_t num_splits) {
  PendingParts sum = multiply_and_scatter(
      ctx, group, x.detach(), weight.shape[0], num_splits, "linear.y",
      [&](const Tensor& rows, Tensor result) { linear_forward_into(ctx, rows, weight, {}, std::move(result)); });
  sum.wait();
  return std::move(sum.tensor);
}

}  // namespace

Tensor linear_with_communication(Context& ctx, const Tensor& x, Parameter& weight, Parameter* bias,
                                 const ProcessGroup& group, const LinearCommunicationOptions& options) {
  if (group.size() == 1) return linear(ctx, x, weight, bias);
  const LinearCommunication kind = options.kind;
  const bool is_row_cut = kind == LinearCommunication::kReduceOutput || kind == LinearCommunication::kScatterOutput;
  require(!(is_row_cut && bias), "[linear] the bias of a row-parallel layer is added after the reduction.");
  Tensor y;
  {
    const WeightLease weight_lease = weight.acquire(ctx);
    const OptionalLease bias_lease(ctx, bias);
    if (kind == LinearCommunication::kGatherInput)
      y = gathered_forward(ctx, x, weight_lease.view(), bias_lease.view(), group, options.overlap.num_gather_splits);
    else if (kind == LinearCommunication::kScatterOutput)
      y = scattered_forward(ctx, x, weight_lease.view(), group, options.overlap.num_scatter_splits);
    else
      y = linear_forward(ctx, x, weight_lease.view(), bias_lease.view());
  }
  if (kind == LinearCommunication::kReduceOutput) start_all_reduce(group, y, ReduceOp::kSum, "linear.y").wait();
  record(ctx, {.in_b = {}, .in_w = {&weight, bias}}, {x.slot}, {&y}, [&] {
    auto node = std::make_unique<ParallelLinearNode>(weight, bias, group, options);
    if (weight.is_trainable()) node->saved_x = SavedTensor(ctx, x);
    return node;
  });
  return y;
}

}  // namespace megatron
