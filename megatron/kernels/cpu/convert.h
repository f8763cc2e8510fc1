// Between storage dtypes and the compute type.
#pragma once

#include <cstdint>

#include "megatron/core/dtype.h"

namespace megatron::kernels {

/// Elements that kernels bring to the compute type at a time: a handful of such buffers stays in L1.
inline constexpr int64_t kPieceElements = 1024;
/// Buffer of one piece, on the stack.
template <class C>
struct Piece {
  alignas(64) C data[kPieceElements];
  operator C*() { return data; }
};

/// y[i] = x[first + i * step] for i in [0, n). C is float or double; fp64 converts to double only.
template <class C>
void to_compute(DType dtype, const void* x, int64_t first, int64_t step, int64_t n, C* y);
/// y[first + i * step] = x[i], rounded to nearest even.
template <class C>
void from_compute(DType dtype, const C* x, int64_t n, void* y, int64_t first, int64_t step);

/// float, or double for fp64: calls `f.template operator()<C>()`.
template <class F>
decltype(auto) dispatch_compute(DType dtype, F&& f) {
  if (dtype == DType::kFloat64) return f.template operator()<double>();
  return f.template operator()<float>();
}

}  // namespace megatron::kernels
