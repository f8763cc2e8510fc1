#include "megatron/kernels/dropout.h"

#include "megatron/kernels/cpu/column_sums.h"
#include "megatron/kernels/cpu/dropout_mask.h"
#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {
namespace {
template <class C>
void forward(const CpuStream& stream, const BiasDropoutAddForwardArgs& args) {
  const RowReader<C> x_rows(args.x), bias(args.bias), residual(args.residual);
  const RowWriter<C> y(args.y);
  parallel_pieces(stream, args.x.num_rows(), args.x.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, other_buffer, sum_buffer;
    const C* x = x_rows.read(row, begin, n, x_buffer);
    C* sum = sum_buffer;
    if (bias) {
      const C* other = bias.read(0, begin, n, other_buffer);
      simd_for(n, [=](int64_t i) { sum[i] = x[i] + other[i]; });
      x = sum;
    }
    if (args.dropout.rate != 0) {
      const C* factor = other_buffer;
      dropout_factors<C>(args.dropout, row, begin, n, other_buffer);
      simd_for(n, [=](int64_t i) { sum[i] = x[i] * factor[i]; });
      x = sum;
    }
    C* out = y.target(row, begin, sum_buffer);
    if (residual) {
      const C* other = residual.read(row, begin, n, other_buffer);
      simd_for(n, [=](int64_t i) { out[i] = other[i] + x[i]; });
    } else if (out != x) {
      std::copy_n(x, n, out);
    }
    y.store(row, begin, n, out);
  });
}

template <class C>
void backward(const CpuStream& stream, const BiasDropoutAddBackwardArgs& args) {
  const int64_t h = args.dy.shape[-1], capacity = h == 0 ? 0 : args.dy.num_elements() / h;
  const RowReader<C> dy_rows(args.dy);
  const RowWriter<C> dx(args.dx);
  const ColumnSums<C> sums(args.workspace, capacity, args.dbias.defined() ? h : 0);
  sums.for_each_row(stream, args.dy.num_rows(), h, [&](int64_t row, C* row_sum) {
    for_each_piece(h, [&](int64_t begin, int64_t n) {
      Piece<C> dy_buffer, dx_buffer, factors;
      const C* dy = dy_rows.read(row, begin, n, dy_buffer);
      C* out = dx ? dx.target(row, begin, dx_buffer) : dx_buffer;
      if (args.dropout.rate != 0) {
        const C* factor = factors;
        dropout_factors<C>(args.dropout, row, begin, n, factors);
        simd_for(n, [=](int64_t i) { out[i] = dy[i] * factor[i]; });
      } else if (out != dy) {
        std::copy_n(dy, n, out);
      }
      if (args.dbias.defined()) {
        C* sum = row_sum + begin;
        simd_for(n, [=](int64_t i) { sum[i] += out[i]; });
      }
      if (dx) dx.store(row, begin, n, out);
    });
  });
  if (args.dbias.defined()) sums.store(stream, 0, args.dbias, args.accumulate);
}
}  // namespace

void bias_dropout_add_forward(const CpuStream& stream, const BiasDropoutAddForwardArgs& args) {
  if (args.residual.defined() && !args.bias.defined() && args.dropout.rate == 0)
    return add(stream, {.a = args.residual, .b = args.x, .y = args.y});
  dispatch_compute(args.x.dtype, [&]<class C>() { forward<C>(stream, args); });
}
void bias_dropout_add_backward(const CpuStream& stream, const BiasDropoutAddBackwardArgs& args) {
  dispatch_compute(args.dy.dtype, [&]<class C>() { backward<C>(stream, args); });
}

}  // namespace megatron::kernels
