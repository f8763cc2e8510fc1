#include "megatron/kernels/weighted_activation.h"

#include "megatron/kernels/cpu/activation_curves.h"
#include "megatron/kernels/cpu/gated_piece.h"
#include "megatron/kernels/cpu/per_row.h"

namespace megatron::kernels {
namespace {

/// Plain rows.
template <class C>
class PlainRows {
 public:
  template <class Args>
  explicit PlainRows(const Args& args) : x_(args.x), activation_(args.activation) {}

  void values(int64_t row, int64_t begin, int64_t n, C* y) const {
    Piece<C> x_buffer;
    activate<C>(activation_, x_.read(row, begin, n, x_buffer), n, y);
  }
  /// Writes dx for the gradient dy of values(), and the values to `y`.
  void differentiate(int64_t row, int64_t begin, int64_t n, const C* dy, const RowWriter<C>& dx, C* y) const {
    Piece<C> x_buffer, derivatives, dx_buffer;
    activate_with_derivative<C>(activation_, x_.read(row, begin, n, x_buffer), n, y, derivatives);
    if (!dx) return;
    const C* derivative = derivatives;
    C* out = dx.target(row, begin, dx_buffer);
    simd_for(n, [=](int64_t i) { out[i] = dy[i] * derivative[i]; });
    dx.store(row, begin, n, out);
  }

 private:
  RowReader<C> x_;
  Activation activation_;
};

/// Rows [gate | up].
template <class C>
class GatedRows {
 public:
  template <class Args>
  explicit GatedRows(const Args& args)
      : gates_(half_of_rows(args.x, 0), {}),
        ups_(half_of_rows(args.x, 1), {}),
        activation_(args.activation),
        options_(args.options),
        f_(args.x.shape[-1] / 2) {}

  void values(int64_t row, int64_t begin, int64_t n, C* y) const {
    GatedPiece<C> piece(gates_, ups_, row, begin, n, options_);
    activate<C>(activation_, piece.clamped_gate, n, piece.clamped_gate);
    const C *activated = piece.clamped_gate, *factor = piece.factor;
    simd_for(n, [=](int64_t i) { y[i] = activated[i] * factor[i]; });
  }
  void differentiate(int64_t row, int64_t begin, int64_t n, const C* dy, const RowWriter<C>& dx, C* y) const {
    GatedPiece<C> piece(gates_, ups_, row, begin, n, options_);
    Piece<C> derivatives, dgate_buffer, dup_buffer;
    activate_with_derivative<C>(activation_, piece.clamped_gate, n, piece.clamped_gate, derivatives);
    const C *gate = piece.gate, *up = piece.up, *factor = piece.factor;
    const C *activated = piece.clamped_gate, *derivative = derivatives;
    const C clamp = static_cast<C>(options_.clamp);
    C *dgate = dgate_buffer, *dup = dup_buffer;
    simd_for(n, [=](int64_t i) {
      const C dgate_i = gate[i] > clamp ? C(0) : dy[i] * factor[i] * derivative[i];
      const C dup_i = up[i] > clamp || up[i] < -clamp ? C(0) : dy[i] * activated[i];
      y[i] = activated[i] * factor[i];
      dgate[i] = dgate_i;
      dup[i] = dup_i;
    });
    if (!dx) return;
    write(dx, row, begin, n, dgate);
    write(dx, row, f_ + begin, n, dup);
  }

 private:
  static void write(const RowWriter<C>& dx, int64_t row, int64_t begin, int64_t n, const C* values) {
    Piece<C> buffer;
    C* out = dx.target(row, begin, buffer);
    std::copy_n(values, n, out);
    dx.store(row, begin, n, out);
  }

  BiasedRows<C> gates_, ups_;
  Activation activation_;
  GateOptions options_;
  int64_t f_;
};

template <class C, class Rows>
void forward(const CpuStream& stream, const WeightedActivationForwardArgs& args) {
  const Rows rows(args);
  const RowWriter<C> y(args.y);
  const ScalarReader weights(args.weights);
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> buffer;
    C* out = y.target(row, begin, buffer);
    rows.values(row, begin, n, out);
    const C weight = static_cast<C>(weights[row]);
    simd_for(n, [=](int64_t i) { out[i] *= weight; });
    y.store(row, begin, n, out);
  });
}

/// A row at a time, as each has a sum over its columns.
template <class C, class Rows>
void backward(const CpuStream& stream, const WeightedActivationBackwardArgs& args) {
  const Rows rows(args);
  const RowReader<C> dy_rows(args.dy);
  const RowWriter<C> dx(args.dx), dweights(args.dweights);
  const ScalarReader weights(args.weights);
  const int64_t f = args.dy.shape[-1], num_rows = args.dy.num_rows();
  parallel_for(stream, args.dy.shape[0], std::max<int64_t>(1, f), [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      C sum = 0;
      for_each_piece(row < num_rows ? f : 0, [&](int64_t begin, int64_t n) {
        Piece<C> dy_buffer, weighted_buffer, values;
        const C *dy = dy_rows.read(row, begin, n, dy_buffer), *y = values;
        const C weight = static_cast<C>(weights[row]);
        C* weighted = weighted_buffer;
        simd_for(n, [=](int64_t i) { weighted[i] = weight * dy[i]; });
        rows.differentiate(row, begin, n, weighted, dx, values);
        sum += simd_sum<C>(n, [=](int64_t i) { return dy[i] * y[i]; });
      });
      if (dweights) {
        C buffer, *out = dweights.target(0, row, &buffer);
        *out = sum;
        dweights.store(0, row, 1, out);
      }
    }
  });
}

}  // namespace

void weighted_activation_forward(const CpuStream& stream, const WeightedActivationForwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    args.is_gated ? forward<C, GatedRows<C>>(stream, args) : forward<C, PlainRows<C>>(stream, args);
  });
}

void weighted_activation_backward(const CpuStream& stream, const WeightedActivationBackwardArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    args.is_gated ? backward<C, GatedRows<C>>(stream, args) : backward<C, PlainRows<C>>(stream, args);
  });
}

}  // namespace megatron::kernels
