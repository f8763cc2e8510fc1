#include "megatron/autograd/parameter.h"

#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/random_fill.h"

namespace megatron {

WeightLease::WeightLease(Parameter& parameter) : parameter_(&parameter) { ++parameter.num_leases_; }
WeightLease::~WeightLease() {
  if (parameter_) --parameter_->num_leases_;
}
ConstView WeightLease::view() const { return std::as_const(parameter_->value_).view(); }

Tensor part_of(const Tensor& tensor, const Box& box) {
  Tensor part = tensor;
  for (int dim = 0; dim < box.sizes.rank(); ++dim) part = part.slice(dim, box.offsets[dim], box.sizes[dim]);
  return part;
}

Parameter::Parameter(const Context& ctx, ParameterOptions options)
    : options_(std::move(options)),
      shape_(options_.shard.local_shape(options_.place)),
      value_(ctx.empty(options_.name, shape_, options_.dtype, MemoryUse::kWeights)) {}

Tensor& Parameter::value() {
  if (before_read) before_read();
  require(num_leases_ == 0, "[Parameter] {} is written while {} leases read it.", name(), num_leases_);
  is_set_ = true;
  return value_;
}

void Parameter::release_unset() {
  if (!is_set_) value_ = Tensor();
}

void Parameter::move_to(const Context& ctx, Tensor place) {
  require<ShapeError>(place.shape() == shape() && place.dtype() == dtype(),
                      "[Parameter] {} of shape {} and dtype {} cannot move to {} of {}.", name(), shape(), dtype(),
                      place.shape(), place.dtype());
  require(num_leases_ == 0, "[Parameter] {} is moved while {} leases read it.", name(), num_leases_);
  if (is_set_)
    launch(ctx, {.name = "copy"},
           [&](auto& stream) { kernels::copy(stream, {.x = std::as_const(value_).view(), .y = place.view()}); });
  value_ = std::move(place);
}

void Parameter::set_main_grad(Tensor gradient) {
  require<ShapeError>(gradient.shape() == shape(), "[Parameter] {} has shape {}, its gradient {}.", name(), shape(),
                      gradient.shape());
  main_grad_ = std::move(gradient);
}

GradTarget Parameter::grad_target(const Context&) {
  require(main_grad_.defined(), "[Parameter] {} has no gradient buffer. Build a ParamAndGradBuffer first.", name());
  require(!is_ready_, "[Parameter] the gradient of {} is written after it was ready: its reduction may be in flight.",
          name());
  return {main_grad_.view(), std::exchange(is_written_, true)};
}

void Parameter::initialize(const Context& ctx) {
  if (options_.init_std == 0) {
    launch(ctx, {.name = "fill"},
           [&](auto& stream) { kernels::fill(stream, {.y = value().view(), .value = options_.init_constant}); });
    return;
  }
  // Each element's number in the whole tensor is its random counter.
  const Shape strides = options_.shard.global_shape.contiguous_strides();
  for (const ShardBox& box : boxes()) {
    Tensor part = part_of(value(), box.local());
    launch(ctx, {.name = "fill_normal"}, [&](auto& stream) {
      kernels::fill_normal(stream, {.y = part.view(),
                                    .key = ctx.key.at("init").at(options_.name),
                                    .global_strides = strides,
                                    .global_offset = element_offset(box.global.offsets, strides),
                                    .std = options_.init_std});
    });
  }
}

void Parameter::begin_step() {
  open_segments_ = num_uses_ = 0;
  is_written_ = is_ready_ = false;
}
void Parameter::add_use() {
  require(!is_ready_, "[Parameter] {} is used after its last segment was closed. List it in each segment that uses it.",
          name());
  ++num_uses_;
}
void Parameter::end_use(const Context& ctx) {
  --num_uses_;
  settle(ctx);
}
void Parameter::close_segment(const Context& ctx) {
  --open_segments_;
  settle(ctx);
}
void Parameter::finish(const Context& ctx) {
  require(num_uses_ == 0, "[Parameter] {} has {} uses without W at the end of the step. The schedule lacks an action.",
          name(), num_uses_);
  open_segments_ = 0;
  settle(ctx);
}
void Parameter::settle(const Context& ctx) {
  if (!is_trainable() || is_ready_ || num_uses_ > 0 || open_segments_ > 0) return;
  is_ready_ = true;
  if (!is_written_ && main_grad_.defined()) {  // else the gradient of the last step would stay
    launch(ctx, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = main_grad_.view(), .value = 0}); });
  }
  if (on_ready) on_ready(*this);
}

}  // namespace megatron
