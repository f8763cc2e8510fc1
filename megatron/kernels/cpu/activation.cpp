#include "megatron/kernels/activation.h"

#include "megatron/kernels/cpu/activation_curves.h"
#include "megatron/kernels/cpu/column_sums.h"
#include "megatron/kernels/cpu/gated_piece.h"

namespace megatron::kernels {
namespace {
template <class C>
void add_to(C* sum, const C* x, int64_t n) {
  simd_for(n, [=](int64_t i) { sum[i] += x[i]; });
}

int64_t num_rows_of_capacity(const ConstView& x) { return x.shape[-1] == 0 ? 0 : x.num_elements() / x.shape[-1]; }

template <class C>
void forward(const CpuStream& stream, const ActivationForwardArgs& args) {
  const BiasedRows<C> x(args.x, args.bias);
  const RowWriter<C> y(args.y);
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, y_buffer;
    C* out = y.target(row, begin, y_buffer);
    activate<C>(args.activation, x.read(row, begin, n, x_buffer), n, out);
    y.store(row, begin, n, out);
  });
}

template <class C>
void backward(const CpuStream& stream, const ActivationBackwardArgs& args) {
  const int64_t f = args.x.shape[-1];
  const BiasedRows<C> x(args.x, args.bias);
  const RowReader<C> dy_rows(args.dy);
  const RowWriter<C> dx(args.dx);
  const bool has_dbias = args.dbias.defined();
  const ColumnSums<C> sums(args.workspace, num_rows_of_capacity(args.x), has_dbias ? f : 0);
  sums.for_each_row(stream, args.x.num_rows(), f, [&](int64_t row, C* sum) {
    for_each_piece(f, [&](int64_t begin, int64_t n) {
      Piece<C> x_buffer, dy_buffer;
      const C* dy = dy_rows.read(row, begin, n, dy_buffer);
      C* out = dx.target(row, begin, dy_buffer);
      differentiate_activation<C>(args.activation, x.read(row, begin, n, x_buffer), dy, n, out);
      if (has_dbias) add_to(sum + begin, out, n);
      dx.store(row, begin, n, out);
    });
  });
  if (has_dbias) sums.store(stream, 0, args.dbias, args.accumulate);
}

template <class C>
void gated_forward(const CpuStream& stream, const GatedActivationForwardArgs& args) {
  const BiasedRows<C> gates(args.gate, args.gate_bias), ups(args.up, args.up_bias);
  const RowWriter<C> y(args.y);
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    GatedPiece<C> piece(gates, ups, row, begin, n, args.options);
    activate<C>(args.activation, piece.clamped_gate, n, piece.clamped_gate);
    const C *activated = piece.clamped_gate, *factor = piece.factor;
    C* out = y.target(row, begin, piece.up_buffer);
    simd_for(n, [=](int64_t i) { out[i] = activated[i] * factor[i]; });
    y.store(row, begin, n, out);
  });
}

template <class C>
void gated_backward(const CpuStream& stream, const GatedActivationBackwardArgs& args) {
  const int64_t f = args.gate.shape[-1];
  const BiasedRows<C> gates(args.gate, args.gate_bias), ups(args.up, args.up_bias);
  const RowReader<C> dys(args.dy);
  const RowWriter<C> dgates(args.dgate), dups(args.dup);
  const bool has_dbias = args.dgate_bias.defined();
  const C clamp = static_cast<C>(args.options.clamp);
  const ColumnSums<C> sums(args.workspace, num_rows_of_capacity(args.gate), has_dbias ? 2 * f : 0);
  sums.for_each_row(stream, args.gate.num_rows(), f, [&](int64_t row, C* sum) {
    for_each_piece(f, [&](int64_t begin, int64_t n) {
      GatedPiece<C> piece(gates, ups, row, begin, n, args.options);
      Piece<C> dy_buffer, derivatives;
      activate_with_derivative<C>(args.activation, piece.clamped_gate, n, piece.clamped_gate, derivatives);
      const C *gate = piece.gate, *up = piece.up, *factor = piece.factor, *dy = dys.read(row, begin, n, dy_buffer);
      const C *activated = piece.clamped_gate, *derivative = derivatives.data;
      C *dgate = dgates.target(row, begin, piece.gate_buffer), *dup = dups.target(row, begin, piece.up_buffer);
      simd_for(n, [=](int64_t i) {
        const C dgate_i = gate[i] > clamp ? C(0) : dy[i] * factor[i] * derivative[i];
        const C dup_i = up[i] > clamp || up[i] < -clamp ? C(0) : dy[i] * activated[i];
        dgate[i] = dgate_i;
        dup[i] = dup_i;
      });
      if (has_dbias) add_to(sum + begin, dgate, n);
      if (has_dbias) add_to(sum + f + begin, dup, n);
      dgates.store(row, begin, n, dgate);
      dups.store(row, begin, n, dup);
    });
  });
  if (has_dbias) sums.store(stream, 0, args.dgate_bias, args.accumulate);
  if (has_dbias) sums.store(stream, f, args.dup_bias, args.accumulate);
}
}  // namespace

void activation_forward(const CpuStream& stream, const ActivationForwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() { forward<C>(stream, args); });
}
void activation_backward(const CpuStream& stream, const ActivationBackwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() { backward<C>(stream, args); });
}
void gated_activation_forward(const CpuStream& stream, const GatedActivationForwardArgs& args) {
  dispatch_compute(args.gate.dtype, [&]<class C>() { gated_forward<C>(stream, args); });
}
void gated_activation_backward(const CpuStream& stream, const GatedActivationBackwardArgs& args) {
  dispatch_compute(args.gate.dtype, [&]<class C>() { gated_backward<C>(stream, args); });
}

}  // namespace megatron::kernels
