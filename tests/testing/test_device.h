// A device, a step state and a context in one: what most tests need.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/core/context.h"
#include "megatron/core/copy.h"

namespace megatron::testing {

/// New memory is poisoned with NaN and every request is logged.
struct TestDevice {
  explicit TestDevice(DeviceKind kind = DeviceKind::kCpu, int num_threads = 2, DeviceKind meta_of = DeviceKind::kCpu)
      : device(kind, {.num_threads = num_threads,
                      .capacity_bytes = int64_t{8} << 30,
                      .poison = true,
                      .record_events = true,
                      .meta_of = meta_of}) {}
  /// On cuda with the step's values of now.
  Context context() {
    if (device.kind() == DeviceKind::kCuda) write_value(device, step, step_on_device());
    return {.device = device,
            .step = device.kind() == DeviceKind::kCuda ? *step_on_device() : step,
            .key = RandomKey::from_seed(1234)};
  }
  StepState* step_on_device() { return reinterpret_cast<StepState*>(step_block_.data()); }

  Device device;
  StepState step{.step = 7};

 private:
  Storage step_block_ = device.backend() == DeviceKind::kCuda
                            ? Storage(device.arena, "step_state", sizeof(StepState), MemoryUse::kOptimizer)
                            : Storage();
};

/// Values of a function of (name, element) in [-1, 1): the same at any dtype and in any layout.
inline void fill_uniform(const Context& ctx, Tensor& x, std::string_view name) {
  dispatch_floating(x.dtype(), [&]<class T>() {
    std::vector<T> values(static_cast<size_t>(x.num_elements()));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<T>(2 * uniform(ctx.key.at("test").at(name), static_cast<int64_t>(i)) - 1);
    write_values<T>(ctx.device, values, x);
  });
}

/// int64 in [0, below).
inline Tensor uniform_integers(const Context& ctx, const Shape& shape, int64_t below) {
  Tensor ids = ctx.empty("ids", shape, DType::kInt64, MemoryUse::kData);
  std::vector<int64_t> values;
  for (int64_t i = 0; i < ids.num_elements(); ++i)
    values.push_back(static_cast<int64_t>(uniform(ctx.key.at("ids"), i) * static_cast<double>(below)));
  write_values<int64_t>(ctx.device, values, ids);
  return ids;
}

/// A contiguous tensor's elements as double; empty on meta.
inline std::vector<double> values_of(Device& device, const Tensor& x) {
  std::vector<double> values;
  if (device.is_meta()) return values;
  dispatch_floating(x.dtype(), [&]<class T>() {
    for (const T value : read_values<T>(device, x)) values.push_back(static_cast<double>(value));
  });
  return values;
}

/// The values of a tensor on a cpu or meta device.
inline std::vector<double> values_of(const Tensor& x) {
  std::vector<double> values;
  if (!x.view().data) return values;
  dispatch_floating(x.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x.num_elements(); ++i) values.push_back(static_cast<double>(x.data<T>()[i]));
  });
  return values;
}

}  // namespace megatron::testing
