// Operands that exist on the CPU and on a CUDA device, for tests that hold a CUDA kernel against the CPU's.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "megatron/core/cuda_stream.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::testing {

inline void check_cuda(cudaError_t error) {
  require<DeviceError>(error == cudaSuccess, "CUDA failed: {}", cudaGetErrorString(error));
}

/// Device memory with a margin on both sides that shows writes outside.
class DeviceBytes {
 public:
  DeviceBytes() = default;
  /// The data begins `shift` bytes after an address divisible by 256.
  DeviceBytes(int64_t size, int64_t shift) : size_(size), begin_(kMargin + shift) {
    check_cuda(cudaMalloc(&data_, static_cast<size_t>(begin_ + size + kMargin)));
  }
  DeviceBytes(DeviceBytes&& other) noexcept { *this = std::move(other); }
  DeviceBytes& operator=(DeviceBytes&& other) noexcept {
    std::swap(data_, other.data_);
    size_ = other.size_;
    begin_ = other.begin_;
    return *this;
  }
  ~DeviceBytes() { cudaFree(data_); }

  char* data() const { return static_cast<char*>(data_) + begin_; }
  void write(const void* host) {
    check_cuda(cudaMemset(data_, kGuard, static_cast<size_t>(begin_ + size_ + kMargin)));
    check_cuda(cudaMemcpy(data(), host, static_cast<size_t>(size_), cudaMemcpyHostToDevice));
  }
  /// Says whether the margins are unchanged.
  bool read(void* host) const {
    std::vector<uint8_t> all(static_cast<size_t>(begin_ + size_ + kMargin));
    check_cuda(cudaMemcpy(all.data(), data_, all.size(), cudaMemcpyDeviceToHost));
    std::memcpy(host, all.data() + begin_, static_cast<size_t>(size_));
    bool is_intact = true;
    for (size_t i = 0; i < all.size(); ++i)
      if (static_cast<int64_t>(i) < begin_ || static_cast<int64_t>(i) >= begin_ + size_) is_intact &= all[i] == kGuard;
    return is_intact;
  }

 private:
  static constexpr int64_t kMargin = 512;
  static constexpr uint8_t kGuard = 0xA5;
  void* data_ = nullptr;
  int64_t size_ = 0, begin_ = 0;
};

/// How the operands of a case lie in memory: elements between rows, and elements by which the data is off alignment.
struct Placement {
  int64_t gap = 0, shift = 0;
};
inline constexpr Placement kPlacements[] = {{0, 0}, {8, 0}, {3, 1}};

/// A tensor on both sides.
class Twin {
 public:
  Twin() = default;
  Twin(DType dtype, const Shape& shape, const std::vector<double>& values = {}, Placement placement = {})
      : start_(dtype, shape, values, placement.gap), cpu_(start_), size_(span_of(start_.view()) * size_of(dtype)) {
    gpu_ = DeviceBytes(size_, placement.shift * size_of(dtype));
    reset();
  }
  void reset() {
    cpu_ = start_;
    reset_gpu();
  }
  void reset_gpu() { gpu_.write(start_.view().data); }
  View cpu() { return cpu_.view(); }
  View gpu() {
    View view = start_.view();
    view.data = gpu_.data();
    return view;
  }
  int64_t num_elements() const { return start_.shape().num_elements(); }

  GuardedTensor from_gpu() const {
    GuardedTensor host = start_;
    EXPECT_TRUE(gpu_.read(host.view().data))
        << "written before or after a tensor of shape " << host.shape().to_string();
    EXPECT_TRUE(host.guards_are_intact()) << "written between rows of a tensor of shape " << host.shape().to_string();
    return host;
  }
  /// Largest difference between the sides, in units of absolute + relative * |value|.
  double error(double absolute, double relative) const {
    return largest_error(from_gpu(), cpu_.values(), absolute, relative);
  }
  std::vector<char> bytes() const {
    std::vector<char> bytes(static_cast<size_t>(size_));
    gpu_.read(bytes.data());
    return bytes;
  }

 private:
  static int64_t span_of(const View& view) {
    int64_t span = view.num_elements() == 0 ? 0 : 1;
    for (int dim = 0; span > 0 && dim < view.shape.rank(); ++dim) span += (view.shape[dim] - 1) * view.strides[dim];
    return span;
  }
  GuardedTensor start_, cpu_;
  int64_t size_ = 0;
  DeviceBytes gpu_;
};

/// Values of a plain type on both sides.
template <class T>
class TwinValues {
 public:
  explicit TwinValues(std::vector<T> values) : start_(std::move(values)) {
    gpu_ = DeviceBytes(static_cast<int64_t>(start_.size() * sizeof(T)), 0);
    reset();
  }
  void reset() {
    cpu_ = start_;
    gpu_.write(start_.data());
  }
  T* cpu() { return cpu_.data(); }
  T* gpu() { return reinterpret_cast<T*>(gpu_.data()); }
  std::vector<T> from_gpu() const {
    std::vector<T> values = start_;
    EXPECT_TRUE(gpu_.read(values.data()));
    return values;
  }
  const std::vector<T>& from_cpu() const { return cpu_; }

 private:
  std::vector<T> start_, cpu_;
  DeviceBytes gpu_;
};

/// Chooses the side of an operand: `on(x)`.
struct OnCpu {
  template <class AnyTwin>
  auto operator()(AnyTwin& x) const {
    return x.cpu();
  }
};
struct OnGpu {
  template <class AnyTwin>
  auto operator()(AnyTwin& x) const {
    return x.gpu();
  }
};

/// A result and how far the sides may differ; exact if both are 0.
struct Result {
  Twin* twin;
  double absolute = 0, relative = 0;
};

/// Bound for a value of about `magnitude` that sums `length` terms in fp32 and is then stored.
inline Result within(Twin& twin, int64_t length = 1, double magnitude = 1) {
  const DType dtype = twin.cpu().dtype;
  return {&twin, tolerance(DType::kFloat32, length, magnitude), 2 * epsilon(dtype)};
}

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
      GTEST_SKIP() << "no CUDA device answers: "
                   << (error == cudaSuccess ? "there is none" : cudaGetErrorString(error));
  }

  /// Runs the kernel once on the CPU and twice on the device, from the first values of the results: the sides must
  /// agree, and the two runs to the bit.
  template <class Run>
  void compare(const std::vector<Result>& results, Run&& run) {
    for (const Result& result : results) result.twin->reset();
    const CpuStream cpu{.num_threads = 2, .libraries = &cpu_libraries_};
    run(cpu, OnCpu());
    std::vector<std::vector<char>> first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      if (repeat > 0)
        for (const Result& result : results) result.twin->reset_gpu();
      run(stream_, OnGpu());
      check_cuda(cudaDeviceSynchronize());
      for (size_t i = 0; i < results.size(); ++i) {
        if (repeat == 0)
          first.push_back(results[i].twin->bytes());
        else
          EXPECT_EQ(first[i], results[i].twin->bytes()) << "result " << i << " differs between two runs";
      }
    }
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_LE(results[i].twin->error(results[i].absolute, results[i].relative), 1) << "result " << i;
  }

  std::unique_ptr<LibraryHandles> libraries_, cpu_libraries_;
  CudaStream stream_{nullptr, &libraries_};
};

inline constexpr DType kCudaTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

}  // namespace megatron::testing
