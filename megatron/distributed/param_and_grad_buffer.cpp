#include "megatron/distributed/param_and_grad_buffer.h"

#include <ranges>

#include "megatron/kernels/elementwise.h"

namespace megatron {

ParamAndGradBuffer::ParamAndGradBuffer(const Context& ctx, const std::vector<Parameter*>& parameters,
                                       DType grad_dtype) {
  for (Parameter* parameter : parameters)
    if (parameter->is_trainable()) parameters_.push_back(parameter);
  const auto aligned = [](int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; };
  int64_t total = 0;
  for (const Parameter* parameter : parameters_) total += aligned(parameter->shape().num_elements());
  grads_ = ctx.empty("main_grads", {total}, grad_dtype, MemoryUse::kGradients);
  launch(ctx, [&](auto& stream) { kernels::fill(stream, {.y = grads_.view(), .value = 0}); });
  int64_t begin = 0;
  for (Parameter* parameter : parameters_ | std::views::reverse) {
    const int64_t size = parameter->shape().num_elements();
    parameter->set_main_grad(grads_.slice(0, begin, size).reshape(parameter->shape()));
    begin += aligned(size);
  }
}

void ParamAndGradBuffer::begin_step() {
  for (Parameter* parameter : parameters_) parameter->begin_step();
}

void ParamAndGradBuffer::finish_step(const Context& ctx) {
  for (Parameter* parameter : parameters_) parameter->finish(ctx);
}

}  // namespace megatron
