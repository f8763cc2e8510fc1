// A device to measure on, and tensors in its memory.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/core/context.h"
#include "megatron/core/device_step_state.h"

namespace megatron {

/// Learning rate of measurements: small, so that weights stay finite, but large enough to change them.
inline constexpr double kBenchLearningRate = 1e-3;

/// The environment of kernels outside of a trainer: a device with a step state whose learning rate is small.
class BenchDevice {
 public:
  /// @param cuda_device  number of the GPU. @param capacity_bytes  of its memory at most; 0: all
  BenchDevice(DeviceKind kind, int num_threads, int cuda_device = 0, int64_t capacity_bytes = 0);

  Device& device() { return device_; }
  const Context& context() const { return ctx_; }

 private:
  Device device_;
  DeviceStepState state_;
  Context ctx_;
};

/// Normal numbers of deviation `std`: the power, and so the speed, of a GPU depends on the data. They repeat after
/// 2^20. @param dtype  floating @param name  the same numbers under the same name
Tensor random_tensor(const Context& ctx, const Shape& shape, DType dtype, double std = 1,
                     std::string_view name = "operand");
/// All elements `value`.
Tensor constant_tensor(const Context& ctx, const Shape& shape, DType dtype, double value);
/// Uniform in [0, bound).
Tensor random_ids(const Context& ctx, const Shape& shape, int64_t bound);

}  // namespace megatron
