// The step state of a trainer, in device memory.
#pragma once

#include "megatron/core/device.h"
#include "megatron/core/step_state.h"
#include "megatron/core/storage.h"

namespace megatron {

/// A reference to it goes into the Context; the host writes it with copy_from_host and does not read it.
class DeviceStepState {
 public:
  explicit DeviceStepState(Device& device)
      : block_(device.arena, "step_state", sizeof(StepState), MemoryUse::kOptimizer) {}
  /// Undefined values until the first copy.
  StepState& get() { return block_.data() ? *reinterpret_cast<StepState*>(block_.data()) : on_meta_; }

 private:
  Storage block_;
  StepState on_meta_;  // where there is no memory
};

}  // namespace megatron
