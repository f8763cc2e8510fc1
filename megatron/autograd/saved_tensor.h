// The one way for a node to hold a value until backward.
#pragma once

#include "megatron/core/context.h"

namespace megatron {

/// Keeps a value on the device, or moves it to the pinned pool and fetches it back (SavePolicy).
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Context& ctx, const Tensor& value) : SavedTensor(ctx, value, ctx.save) {}
  SavedTensor(const Context& ctx, const Tensor& value, SavePolicy policy);
  bool defined() const { return value_.defined() || host_.defined(); }
  Tensor get(const Context& ctx) const;
  void drop() { value_ = host_ = {}; }

 private:
  Tensor value_, host_;
};

}  // namespace megatron
