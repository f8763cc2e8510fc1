// Small results of several kernels, read by the host with one wait.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "megatron/core/context.h"

namespace megatron {

/// A training step has one wait for the device, and this is it. Example:
///   Readback readback;
///   readback.add(losses, std::span<double>(values));
///   readback.wait(ctx);  // now `values` holds them
class Readback {
 public:
  /// @param x            contiguous; must not be written before wait().
  /// @param destination  of as many elements; lives until wait().
  template <class T>
  void add(const Tensor& x, std::span<T> destination) {
    require<ShapeError>(x.is_contiguous() && x.bytes() == static_cast<int64_t>(destination.size_bytes()),
                        "[Readback] {} elements of a tensor of shape {} and strides {}.", destination.size(), x.shape(),
                        x.strides());
    pieces_.push_back({x, x.data<T>(), std::as_writable_bytes(destination)});
  }
  /// Reads all that was added: gathered on the device, then copied once. On meta destinations become zero.
  void wait(const Context& ctx);

 private:
  struct Piece {
    Tensor tensor;  // not given back before it was read
    const void* source;
    std::span<std::byte> destination;
  };
  std::vector<Piece> pieces_;
};

}  // namespace megatron
