#include "megatron/bench/bench_device.h"

#include <algorithm>

#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/random_fill.h"

namespace megatron {
namespace {

constexpr int64_t kPeriod = int64_t{1} << 20;

}  // namespace

BenchDevice::BenchDevice(DeviceKind kind, int num_threads, int cuda_device, int64_t capacity_bytes)
    : device_(kind, {.num_threads = num_threads, .capacity_bytes = capacity_bytes, .cuda_device = cuda_device}),
      state_(device_),
      ctx_{.device = device_, .step = state_.get(), .key = RandomKey::from_seed(1)} {
  write_value(device_, StepState{.learning_rate = kBenchLearningRate}, &ctx_.step);
}

Tensor random_tensor(const Context& ctx, const Shape& shape, DType dtype, double std, std::string_view name) {
  Tensor x = ctx.empty(name, shape, dtype);
  const int64_t n = x.num_elements();
  if (n == 0) return x;
  const int64_t drawn = std::min(n, kPeriod);
  Tensor flat = x.reshape({n}), first = flat.slice(0, 0, drawn);
  launch(ctx, [&](auto& stream) {
    kernels::fill_normal(stream, {.y = first.view(), .key = ctx.key.at(name), .global_strides = {1}, .std = std});
  });
  for (int64_t done = drawn; done < n; done *= 2) {
    const Tensor from = flat.slice(0, 0, std::min(done, n - done));
    Tensor to = flat.slice(0, done, from.num_elements());
    copy_on_device(ctx.device, from.view().data, to.view().data, from.bytes());
  }
  return x;
}

Tensor constant_tensor(const Context& ctx, const Shape& shape, DType dtype, double value) {
  Tensor x = ctx.empty("operand", shape, dtype);
  launch(ctx, [&](auto& stream) { kernels::fill(stream, {.y = x.view(), .value = value}); });
  return x;
}

Tensor random_ids(const Context& ctx, const Shape& shape, int64_t bound) {
  Tensor ids = ctx.empty("ids", shape, DType::kInt64);
  std::vector<int64_t> values(static_cast<size_t>(ids.num_elements()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int64_t>(RandomKey::mix(i) % static_cast<uint64_t>(bound));
  write_values<int64_t>(ctx.device, values, ids);
  return ids;
}

}  // namespace megatron
