// The value that a node keeps for backward.
#pragma once

#include <functional>

#include "megatron/core/context.h"

namespace megatron {

/// Computes a value a second time, with the same bits.
using Rematerialization = std::function<Tensor(Context&)>;

/// Keeps a value on the device, or moves it to the pinned pool and fetches it back (SavePolicy). A value that the tape
/// can recompute (recompute_when_saved()) is not kept: get() computes it.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Context& ctx, const Tensor& value) : SavedTensor(ctx, value, ctx.save) {}
  SavedTensor(const Context& ctx, const Tensor& value, SavePolicy policy);
  bool defined() const { return value_.defined() || host_.defined() || again_; }
  Tensor get(const Context& ctx) const;
  void drop() {
    value_ = host_ = {};
    again_ = nullptr;
  }

 private:
  Tensor value_, host_;
  Rematerialization again_;
  Shape shape_;  // of the result of again_
};

}  // namespace megatron
