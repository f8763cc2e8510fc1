// A device, a step state and a context in one: what most tests need.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/core/context.h"

namespace megatron::testing {

/// New memory is poisoned with NaN and every request is logged.
struct TestDevice {
  explicit TestDevice(DeviceKind kind = DeviceKind::kCpu, int num_threads = 2)
      : device(
            kind,
            {.num_threads = num_threads, .capacity_bytes = int64_t{8} << 30, .poison = true, .record_events = true}) {}
  Context context() { return {.device = device, .step = step, .key = RandomKey::from_seed(1234)}; }

  Device device;
  StepState step{.step = 7};
};

/// Values of a function of (name, element) in [-1, 1): the same at any dtype and in any layout.
inline void fill_uniform(const Context& ctx, Tensor& x, std::string_view name) {
  launch(ctx, [&](auto&) {
    dispatch_floating(x.dtype(), [&]<class T>() {
      for (int64_t i = 0; i < x.num_elements(); ++i)
        x.data<T>()[i] = static_cast<T>(2 * uniform(ctx.key.at("test").at(name), i) - 1);
    });
  });
}

/// A contiguous tensor's elements as double; empty on meta.
inline std::vector<double> values_of(const Tensor& x) {
  std::vector<double> values;
  if (!x.view().data) return values;
  dispatch_floating(x.dtype(), [&]<class T>() {
    for (int64_t i = 0; i < x.num_elements(); ++i) values.push_back(static_cast<double>(x.data<T>()[i]));
  });
  return values;
}

}  // namespace megatron::testing
