// The value that a node keeps for backward.
#pragma once

#include <functional>
#include <memory>

#include "megatron/autograd/offloaded_values.h"
#include "megatron/core/context.h"

namespace megatron {

/// Computes a value a second time, with the same bits.
using Rematerialization = std::function<Tensor(Context&)>;

/// Keeps a value on the device, or moves it to the pinned pool and fetches it back (SavePolicy): beside kernels where
/// the tape has OffloadedValues, else in their stream. A value that the tape
/// can recompute (recompute_when_saved()) is not kept: get() computes it.
class SavedTensor {
 public:
  SavedTensor() = default;
  SavedTensor(const Context& ctx, const Tensor& value) : SavedTensor(ctx, value, ctx.save) {}
  SavedTensor(const Context& ctx, const Tensor& value, SavePolicy policy);
  bool defined() const { return value_.defined() || block_ || host_.defined() || again_; }
  Tensor get(const Context& ctx) const;
  void drop() {
    value_ = host_ = {};
    block_.reset();
    again_ = nullptr;
  }

 private:
  Tensor value_, host_;
  std::shared_ptr<OffloadedBlock> block_;  // with a storage-less value_
  Rematerialization again_;
  Shape shape_;  // of the result of again_
};

}  // namespace megatron
