// Buffers in device memory and a clock, for programs that time CUDA kernels.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/random_fill.h"

namespace megatron::kernels {

inline constexpr int kWarmups = 3, kRepeats = 20;
inline constexpr DType kBf16 = DType::kBFloat16, kF32 = DType::kFloat32;

inline void check(cudaError_t error) {
  require<DeviceError>(error == cudaSuccess, "CUDA failed: {}", cudaGetErrorString(error));
}

/// A contiguous tensor of normal numbers in device memory.
class Buffer {
 public:
  Buffer(const CudaStream& stream, DType dtype, const Shape& shape) : view_{nullptr, dtype, shape, {}} {
    view_.strides = shape.contiguous_strides();
    check(cudaMalloc(&view_.data, static_cast<size_t>(shape.num_elements() * size_of(dtype))));
    if (dtype == kBf16 || dtype == kF32)
      fill_normal(stream, {.y = view_, .key = {7}, .global_strides = view_.strides, .std = 1});
    else
      fill(stream, {.y = view_});
  }
  ~Buffer() { cudaFree(view_.data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  operator View() const { return view_; }
  operator ConstView() const { return view_; }
  template <class T>
  void write(const std::vector<T>& values) {
    check(cudaMemcpy(view_.data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  /// The same memory in another shape.
  View as(const Shape& shape) const {
    View view = view_;
    view.shape = shape;
    view.strides = shape.contiguous_strides();
    return view;
  }
  /// Columns [first, first + n) of a matrix.
  View columns(int64_t first, int64_t n) const {
    View view = view_;
    view.data = static_cast<char*>(view.data) + first * size_of(view.dtype);
    view.shape[-1] = n;
    return view;
  }
  template <class T>
  T* data() const {
    return static_cast<T*>(view_.data);
  }

 private:
  View view_;
};

/// Prints what it measures and writes it to a file: all cases, or those whose names contain `filter`.
class Bench {
 public:
  explicit Bench(std::string filter = {}) : filter_(std::move(filter)) {
    check(cudaStreamCreate(&stream_.stream));
    stream_.libraries = &libraries_;
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }
  const CudaStream& stream() const { return stream_; }

  double microseconds(const std::function<void()>& run) {
    for (int i = 0; i < kWarmups; ++i) run();
    std::vector<float> times;
    for (int i = 0; i < kRepeats; ++i) {
      check(cudaEventRecord(begin_, stream_.stream));
      run();
      check(cudaEventRecord(end_, stream_.stream));
      check(cudaEventSynchronize(end_));
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin_, end_));
      times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    return 1000.0 * times[times.size() / 2];
  }

  /// The bandwidth that others are compared with: two arrays of 2^27 fp32.
  void measure_copy() {
    constexpr int64_t kSize = int64_t{1} << 27;
    const Buffer x(stream_, kF32, {kSize}), y(stream_, kF32, {kSize});
    const double bytes = 2.0 * 4 * kSize;
    const double time = microseconds([&] { copy(stream_, {.x = x, .y = y}); });
    bytes_per_microsecond_ = bytes / time;
    fmt::print("device-to-device copy: {:.0f} GB/s read and written\n", bytes_per_microsecond_ / 1000);
    add("copy", time, bytes, 0);
  }
  void bandwidth(const std::string& name, double bytes, const std::function<void()>& run) {
    if (name.find(filter_) == std::string::npos) return;
    const double time = microseconds(run);
    fmt::print("{:<48}{:>10.1f} us {:>8.1f} MB {:>6.1f} % of the copy's bandwidth\n", name, time, bytes / 1e6,
               100 * bytes / time / bytes_per_microsecond_);
    add(name, time, bytes, 0);
  }
  void arithmetic(const std::string& name, double operations, const std::function<void()>& run) {
    if (name.find(filter_) == std::string::npos) return;
    const double time = microseconds(run);
    fmt::print("{:<48}{:>10.1f} us {:>8.1f} TFLOP/s\n", name, time, operations / time / 1e6);
    add(name, time, 0, operations);
  }
  void write(const char* path) const {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, 0));
    std::FILE* file = std::fopen(path, "w");
    require<IoError>(file != nullptr, "cannot write {}", path);
    fmt::print(file, "{{\"device\": \"{}\", \"copy_bytes_per_second\": {:.4g}, \"kernels\": [{}\n]}}\n",
               properties.name, 1e6 * bytes_per_microsecond_, rows_);
    std::fclose(file);
  }

 private:
  void add(const std::string& name, double time, double bytes, double operations) {
    rows_ += fmt::format(
        "{}\n  {{\"name\": \"{}\", \"microseconds\": {:.2f}, \"bytes\": {:.0f}, \"share_of_copy_bandwidth\": {:.3f}, "
        "\"operations\": {:.0f}}}",
        rows_.empty() ? "" : ",", name, time, bytes, bytes / time / bytes_per_microsecond_, operations);
  }
  std::unique_ptr<LibraryHandles> libraries_;
  CudaStream stream_;
  cudaEvent_t begin_, end_;
  double bytes_per_microsecond_ = 1;
  std::string filter_, rows_;
};

}  // namespace megatron::kernels
