// Inputs of activation functions, with the biases and clamps applied.
#pragma once

#include "megatron/kernels/activation.h"
#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {

/// Rows of a linear's output with its bias added.
template <class C>
class BiasedRows {
 public:
  BiasedRows(const ConstView& x, const ConstView& bias) : x_(x), bias_(bias) {}
  const C* read(int64_t row, int64_t begin, int64_t n, C* buffer) const {
    const C* x = x_.read(row, begin, n, buffer);
    if (!bias_) return x;
    Piece<C> bias_buffer;
    const C* bias = bias_.read(0, begin, n, bias_buffer);
    simd_for(n, [=](int64_t i) { buffer[i] = x[i] + bias[i]; });
    return buffer;
  }

 private:
  RowReader<C> x_, bias_;
};

/// Gate and up with biases and clamps applied.
template <class C>
struct GatedPiece {
  Piece<C> gate_buffer, up_buffer, clamped_gate, factor;
  const C *gate, *up;  // with bias, before the clamps

  GatedPiece(const BiasedRows<C>& gates, const BiasedRows<C>& ups, int64_t row, int64_t begin, int64_t n,
             const GateOptions& options)
      : gate(gates.read(row, begin, n, gate_buffer)), up(ups.read(row, begin, n, up_buffer)) {
    const C clamp = static_cast<C>(options.clamp), offset = static_cast<C>(options.linear_offset);
    const C *g = gate, *u = up;
    C *clamped = clamped_gate, *f = factor;
    simd_for(n, [=](int64_t i) {
      clamped[i] = g[i] > clamp ? clamp : g[i];
      f[i] = (u[i] > clamp ? clamp : u[i] < -clamp ? -clamp : u[i]) + offset;
    });
  }
};

}  // namespace megatron::kernels
