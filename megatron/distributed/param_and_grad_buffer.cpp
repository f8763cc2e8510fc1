#include "megatron/distributed/param_and_grad_buffer.h"

#include <utility>

#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

/// Gradients of one rank in one bucket.
BufferPlan plan_of(const std::vector<Parameter*>& parameters, DType grad_dtype) {
  BufferPlan plan{.grad_dtype = grad_dtype};
  std::vector<BufferLayout::Entry> entries;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i]->is_trainable()) continue;
    plan.parameters.push_back(i);
    entries.push_back({parameters[i]->shape().num_elements()});
  }
  plan.layout = BufferLayout::make(entries, {});
  return plan;
}

Tensor zeros(const Context& ctx, std::string_view name, int64_t size, DType dtype, MemoryUse use) {
  Tensor x = ctx.empty(name, {size}, dtype, use);
  launch(ctx, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = x.view(), .value = 0}); });
  return x;
}

}  // namespace

ParamAndGradBuffer::ParamAndGradBuffer(const Context& ctx, const std::vector<Parameter*>& parameters, DType grad_dtype)
    : ParamAndGradBuffer(ctx, plan_of(parameters, grad_dtype), parameters, false) {}

ParamAndGradBuffer::ParamAndGradBuffer(const Context& ctx, BufferPlan plan, const std::vector<Parameter*>& chunk,
                                       bool with_params)
    : plan_(std::move(plan)) {
  for (size_t number : plan_.parameters) parameters_.push_back(chunk[number]);
  if (with_params)
    move_weights(ctx);  // first: weights that are set are there twice meanwhile, and gradients are larger
  grads_ = zeros(ctx, "main_grads", layout().num_elements(), plan_.grad_dtype, MemoryUse::kGradients);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ElementRange& range = layout().slots[i].range;
    parameters_[i]->set_main_grad(grads_.slice(0, range.begin, range.size()).reshape(parameters_[i]->shape()));
  }
}

void ParamAndGradBuffer::move_weights(const Context& ctx) {
  params_ = zeros(ctx, "params", layout().num_elements(), plan_.param_dtype, MemoryUse::kWeights);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const ElementRange& range = layout().slots[i].range;
    parameters_[i]->move_to(ctx, params_.slice(0, range.begin, range.size()).reshape(parameters_[i]->shape()));
  }
}

void ParamAndGradBuffer::begin_step() {
  for (Parameter* parameter : parameters_) parameter->begin_step();
}

void ParamAndGradBuffer::finish_step(const Context& ctx) {
  for (Parameter* parameter : parameters_) parameter->finish(ctx);
}

}  // namespace megatron
