#include "megatron/kernels/gather_rows.h"

#include <atomic>

#include "megatron/kernels/cpu/per_row.h"
#include "megatron/kernels/cpu/row_scatter.h"
#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {
namespace {
/// Raises the flag if the true number of rows is above the capacity.
void check_capacity(const ConstView& bounded, StepState* state) {
  if (bounded.count && *bounded.count > bounded.shape[0])
    std::atomic_ref(state->overflow).store(1, std::memory_order_relaxed);
}

template <class C>
void gather(const CpuStream& stream, const GatherRowsArgs& args) {
  const RowReader<C> x(args.x);
  const RowWriter<C> y(args.y);
  const IndexReader index(args.index);
  const ScalarReader weights(args.weights);
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, y_buffer;
    C* out = y.target(row, begin, y_buffer);
    if (index[row] < 0) {
      std::fill_n(out, n, C(0));
    } else {
      const C* in = x.read(index[row], begin, n, x_buffer);
      const C weight = weights ? static_cast<C>(weights[row]) : C(1);
      simd_for(n, [=](int64_t i) { out[i] = weight * in[i]; });
    }
    y.store(row, begin, n, out);
  });
}

template <class C>
void combine(const CpuStream& stream, const CombineRowsForwardArgs& args) {
  const RowReader<C> x(args.x);
  const RowWriter<C> y(args.y);
  const IndexReader slots(args.slots);
  const ScalarReader weights(args.weights);
  const int64_t k = args.slots.shape[1];
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, y_buffer;
    C* out = y.target(row, begin, y_buffer);
    std::fill_n(out, n, C(0));
    for (int64_t choice = row * k; choice < (row + 1) * k; ++choice) {
      if (slots[choice] < 0) continue;
      const C* in = x.read(slots[choice], begin, n, x_buffer);
      const C weight = weights ? static_cast<C>(weights[choice]) : C(1);
      simd_for(n, [=](int64_t i) { out[i] += weight * in[i]; });
    }
    y.store(row, begin, n, out);
  });
}

template <class C>
void combine_backward(const CpuStream& stream, const CombineRowsBackwardArgs& args) {
  const RowReader<C> x(args.x), dy(args.dy);
  const RowWriter<C> dx(args.dx), dweights(args.dweights);
  const IndexReader slots(args.slots);
  const ScalarReader weights(args.weights);
  const int64_t k = args.slots.shape[1], h = args.dy.shape[-1];
  /// Writes the row of dx and returns the gradient of the weight.
  const auto choose = [&](int64_t row, int64_t slot, C weight) {
    Piece<C> x_buffer, dy_buffer, dx_buffer;
    C dweight = 0;
    for_each_piece(h, [&](int64_t begin, int64_t n) {
      const C *gradient = dy.read(row, begin, n, dy_buffer), *in = x.read(slot, begin, n, x_buffer);
      C* out = dx.target(slot, begin, dx_buffer);
      dweight += simd_sum<C>(n, [=](int64_t i) { return gradient[i] * in[i]; });
      simd_for(n, [=](int64_t i) { out[i] = weight * gradient[i]; });
      dx.store(slot, begin, n, out);
    });
    return dweight;
  };
  fill(stream, {.y = args.dx});
  parallel_for(stream, args.dy.num_rows(), k * h, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      for (int64_t j = 0; j < k; ++j) {
        const int64_t slot = slots[row * k + j];
        C buffer;
        C* dweight = dweights.target(row, j, &buffer);
        *dweight = slot < 0 ? C(0) : choose(row, slot, static_cast<C>(weights[row * k + j]));
        dweights.store(row, j, 1, dweight);
      }
    }
  });
}
}  // namespace

void gather_rows(const CpuStream& stream, const GatherRowsArgs& args) {
  check_capacity(args.y, args.state);
  dispatch_compute(args.x.dtype, [&]<class C>() { gather<C>(stream, args); });
}

void scatter_add_rows(const CpuStream& stream, const ScatterAddRowsArgs& args) {
  check_capacity(args.x, args.state);
  const IndexReader index(args.index);
  RowScatter scatter(args.workspace);
  const int64_t num_rows = args.x.num_rows();
  for (int64_t row = 0; row < num_rows; ++row)
    if (index[row] >= 0) scatter.add(row, index[row]);
  scatter.run(stream, args.x, args.y, args.accumulate);
}

void combine_rows_forward(const CpuStream& stream, const CombineRowsForwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() { combine<C>(stream, args); });
}
void combine_rows_backward(const CpuStream& stream, const CombineRowsBackwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() { combine_backward<C>(stream, args); });
}

}  // namespace megatron::kernels
