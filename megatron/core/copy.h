// The only ways in which the host reads and writes device memory. A pointer to device memory is never dereferenced.
#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "megatron/core/device.h"
#include "megatron/core/tensor.h"

namespace megatron {

/// In the order of the kernels of the device. Sizes are those of the spans; device memory is contiguous. On cpu the
/// functions are memcpy and memset. On meta nothing is written, and a read gives zeros.
///
/// The memory may be page-locked host memory of the device (Device::pinned): then each of them waits for the kernels.
///
/// Blocking: on cuda a host sync, which ends the run-ahead of the host. A training step may have a single one, where
/// loss, norm and found_inf come together.
void copy_to_host(Device& device, const void* from, std::span<std::byte> to);
/// `from` may be reused at once. On cuda it goes through page-locked memory and does not wait for the kernels before.
void copy_from_host(Device& device, std::span<const std::byte> from, void* to);
/// Between two places in device memory that do not overlap. Does not wait.
void copy_on_device(Device& device, const void* from, void* to, int64_t bytes);
/// Does not wait.
void fill_zero(Device& device, void* to, int64_t bytes);

/// One value from device memory. Blocking.
template <class T>
requires std::is_trivially_copyable_v<T> T read_value(Device& device, const T* from) {
  T value{};
  copy_to_host(device, from, std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

/// The elements of a contiguous tensor. Blocking. @throw DtypeError, ShapeError
template <class T>
std::vector<T> read_values(Device& device, const Tensor& x) {
  require<ShapeError>(x.is_contiguous(), "[read_values] a tensor of shape {} and strides {} has gaps.", x.shape(),
                      x.strides());
  std::vector<T> values(static_cast<size_t>(x.num_elements()));
  copy_to_host(device, x.data<T>(), std::as_writable_bytes(std::span(values)));
  return values;
}

/// Sets a value in device memory. Does not wait.
template <class T>
requires std::is_trivially_copyable_v<T>
void write_value(Device& device, const T& value, T* to) {
  copy_from_host(device, std::as_bytes(std::span(&value, 1)), to);
}

/// Sets the elements of a contiguous tensor. Does not wait. @throw DtypeError, ShapeError
template <class T>
void write_values(Device& device, std::span<const T> values, Tensor& x) {
  require<ShapeError>(x.is_contiguous() && static_cast<int64_t>(values.size()) == x.num_elements(),
                      "[write_values] {} values for a tensor of shape {} and strides {}.", values.size(), x.shape(),
                      x.strides());
  copy_from_host(device, std::as_bytes(values), x.data<T>());
}

}  // namespace megatron
