#include "megatron/kernels/row_weights.h"

#include "megatron/kernels/cpu/per_row.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {

/// dots[r] = a[r] . b[row_of_b(r)] for the first `num_rows` rows, 0 for the others.
template <class C, class RowOfB>
void dot_rows(const CpuStream& stream, const ConstView& a, const ConstView& b, const View& dots, int64_t num_rows,
              const RowOfB& row_of_b) {
  const RowReader<C> a_rows(a), b_rows(b);
  const RowWriter<C> out(dots);
  const int64_t h = a.shape[-1];
  parallel_for(stream, dots.shape[0], h, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      Piece<C> a_buffer, b_buffer;
      C buffer, *dot = out.target(0, row, &buffer);
      *dot = 0;
      for_each_piece(row < num_rows ? h : 0, [&](int64_t begin, int64_t n) {
        const C *x = a_rows.read(row, begin, n, a_buffer), *y = b_rows.read(row_of_b(row), begin, n, b_buffer);
        *dot += simd_sum<C>(n, [=](int64_t i) { return x[i] * y[i]; });
      });
      out.store(0, row, 1, dot);
    }
  });
}

/// y[r] = x[r] + weights[r] * bias[group of r].
template <class C>
void add_bias(const CpuStream& stream, const GroupedBiasForwardArgs& args) {
  const RowReader<C> x(args.x), bias(args.bias);
  const RowWriter<C> y(args.y);
  const ScalarReader weights(args.weights);
  parallel_pieces(stream, args.groups.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, bias_buffer, y_buffer;
    const C* in = x.read(row, begin, n, x_buffer);
    const C* shift = bias.read(args.groups.group_of(row), begin, n, bias_buffer);
    const C weight = weights ? static_cast<C>(weights[row]) : C(1);
    C* out = y.target(row, begin, y_buffer);
    simd_for(n, [=](int64_t i) { out[i] = in[i] + weight * shift[i]; });
    y.store(row, begin, n, out);
  });
}

template <class C>
void sum_groups(const CpuStream& stream, const GroupedBiasBackwardArgs& args) {
  const RowReader<C> dy(args.dy);
  const RowWriter<C> dbias(args.dbias);
  const ScalarReader weights(args.weights);
  const int64_t mean_rows = args.groups.capacity / std::max<int64_t>(1, args.groups.num_groups) + 1;
  parallel_pieces(
      stream, args.groups.num_groups, args.dy.shape[-1],
      [&](int64_t group, int64_t begin, int64_t n) {
        Piece<C> sum_buffer, old_buffer, dy_buffer;
        C* sum = sum_buffer;
        std::fill_n(sum, n, C(0));
        if (args.accumulate) {
          const C* old = dbias.read(group, begin, n, old_buffer);
          std::copy_n(old, n, sum);
        }
        for (int64_t row = args.groups.begin(group); row < args.groups.end(group); ++row) {
          const C weight = weights ? static_cast<C>(weights[row]) : C(1);
          const C* addend = dy.read(row, begin, n, dy_buffer);
          simd_for(n, [=](int64_t i) { sum[i] += weight * addend[i]; });
        }
        C* out = dbias.target(group, begin, old_buffer);
        std::copy_n(sum, n, out);
        dbias.store(group, begin, n, out);
      },
      mean_rows);
}

}  // namespace

void scale_rows(const CpuStream& stream, const ScaleRowsArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    const RowReader<C> x(args.x);
    const RowWriter<C> y(args.y);
    const ScalarReader weights(args.weights);
    parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
      Piece<C> x_buffer, y_buffer;
      const C* in = x.read(row, begin, n, x_buffer);
      C* out = y.target(row, begin, y_buffer);
      const C weight = static_cast<C>(weights[row]);
      simd_for(n, [=](int64_t i) { out[i] = weight * in[i]; });
      y.store(row, begin, n, out);
    });
  });
}

void row_dots(const CpuStream& stream, const RowDotsArgs& args) {
  dispatch_compute(args.a.dtype, [&]<class C>() {
    dot_rows<C>(stream, args.a, args.b, args.dots, args.a.num_rows(), [](int64_t row) { return row; });
  });
}

void grouped_bias_forward(const CpuStream& stream, const GroupedBiasForwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() { add_bias<C>(stream, args); });
}

void grouped_bias_backward(const CpuStream& stream, const GroupedBiasBackwardArgs& args) {
  dispatch_compute(args.dy.dtype, [&]<class C>() { sum_groups<C>(stream, args); });
}

void grouped_bias_dots(const CpuStream& stream, const GroupedBiasDotsArgs& args) {
  dispatch_compute(args.dy.dtype, [&]<class C>() {
    dot_rows<C>(stream, args.dy, args.bias, args.dots, args.groups.num_rows(),
                [&](int64_t row) { return args.groups.group_of(row); });
  });
}

}  // namespace megatron::kernels
