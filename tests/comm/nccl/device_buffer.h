// Operands of collectives on a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <vector>

#include "megatron/core/view.h"

namespace megatron::testing {

/// Elements in the memory of the GPU. Copies are made on a stream of its own, after `Work` has ended on the host.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(const std::vector<T>& values) : size_(static_cast<int64_t>(values.size())) {
    EXPECT_EQ(cudaMalloc(&data_, values.size() * sizeof(T)), cudaSuccess);
    set(values);
  }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void set(const std::vector<T>& values) const {
    EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  }
  View view() const { return view(0, size_); }
  View view(int64_t begin, int64_t length) const {
    const Shape shape{length};
    return {static_cast<T*>(data_) + begin, dtype_of<T>(), shape, shape.contiguous_strides(), nullptr};
  }
  std::vector<T> values() const {
    std::vector<T> result(static_cast<size_t>(size_));
    EXPECT_EQ(cudaMemcpy(result.data(), data_, result.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }

 private:
  int64_t size_;
  void* data_ = nullptr;
};

}  // namespace megatron::testing
