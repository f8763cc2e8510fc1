#include "megatron/training/planning/whole_model.h"

#include "megatron/core/device_step_state.h"

namespace megatron {

void with_whole_model(const PretrainConfig& config, const std::function<void(const Model&)>& use) {
  Device device(DeviceKind::kMeta, {.capacity_bytes = int64_t{1} << 46});  // more than any model has
  DeviceStepState step(device);
  const Context ctx{.device = device, .step = step.get(), .key = {}};
  const ProcessGroupCollection groups = ProcessGroupCollection::single();
  const auto model = config.family.make_model({.ctx = ctx, .config = config.transformer, .groups = groups, .path = ""},
                                              whole_layout(config.transformer), config.family.options);
  use(*model);
}

}  // namespace megatron
