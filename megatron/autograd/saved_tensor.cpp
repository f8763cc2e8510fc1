#include "megatron/autograd/saved_tensor.h"

#include "megatron/autograd/tape.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {

SavedTensor::SavedTensor(const Context& ctx, const Tensor& value, SavePolicy policy) {
  if (ctx.tape && value.defined()) again_ = ctx.tape->take_rematerialization(value.slot);
  if (again_) {
    shape_ = value.shape();
    return;
  }
  value_ = value.detach();
  if (policy == SavePolicy::kKeep || !value.defined() || value.num_elements() < ctx.min_offloaded_elements) return;
  if (OffloadedValues* beside_kernels = ctx.tape ? ctx.tape->offloaded_values() : nullptr) {
    if (value.storage().use() != MemoryUse::kActivations) return;  // others have it longer
    block_ = beside_kernels->keep(value.storage());
    value_ = value_.on({});
    return;
  }
  host_ = Tensor(Storage(ctx.device.pinned, "saved.host", value.bytes(), MemoryUse::kActivations), value.dtype(),
                 value.shape(), value.count());
  launch(ctx, {.name = "copy"},
         [&](auto& stream) { kernels::copy(stream, {.x = std::as_const(value_).view(), .y = host_.view()}); });
  value_ = {};
}

Tensor SavedTensor::get(const Context& ctx) const {
  if (again_) {
    Context second = ctx;
    second.tape = nullptr;
    second.run = nullptr;
    second.mode = GradMode::kReplay;
    second.place.pass = Pass::kRecompute;
    return again_(second).reshape(shape_);
  }
  if (block_) return value_.on(block_->storage());
  if (!host_.defined()) return value_;
  Tensor fetched = ctx.empty_like("saved.fetched", host_);
  launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = host_.view(), .y = fetched.view()}); });
  return fetched;
}

}  // namespace megatron
