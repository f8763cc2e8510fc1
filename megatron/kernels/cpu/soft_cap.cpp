#include "megatron/kernels/soft_cap.h"

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/cpu/vector_math.h"

namespace megatron::kernels {
namespace {

template <class C>
void forward(const CpuStream& stream, const SoftCapForwardArgs& args) {
  const RowReader<C> x(args.x);
  const RowWriter<C> y(args.y);
  const C cap = static_cast<C>(args.cap), inverse = static_cast<C>(1 / args.cap);
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, y_buffer;
    const C* in = x.read(row, begin, n, x_buffer);
    C* out = y.target(row, begin, y_buffer);
    simd_for(n, [=](int64_t i) { out[i] = cap * hyperbolic_tangent(inverse * in[i]); });
    y.store(row, begin, n, out);
  });
}

template <class C>
void backward(const CpuStream& stream, const SoftCapBackwardArgs& args) {
  const RowReader<C> y(args.y), dy(args.dy);
  const RowWriter<C> dx(args.dx);
  const C inverse = static_cast<C>(1 / args.cap);
  parallel_pieces(stream, args.dx.num_rows(), args.dx.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> y_buffer, dy_buffer, dx_buffer;
    const C *value = y.read(row, begin, n, y_buffer), *gradient = dy.read(row, begin, n, dy_buffer);
    C* out = dx.target(row, begin, dx_buffer);
    simd_for(n, [=](int64_t i) {
      const C t = inverse * value[i];
      out[i] = gradient[i] * (1 - t) * (1 + t);
    });
    dx.store(row, begin, n, out);
  });
}

}  // namespace

void soft_cap_forward(const CpuStream& stream, const SoftCapForwardArgs& args) {
  dispatch_compute(args.y.dtype, [&]<class C>() { forward<C>(stream, args); });
}

void soft_cap_backward(const CpuStream& stream, const SoftCapBackwardArgs& args) {
  dispatch_compute(args.dx.dtype, [&]<class C>() { backward<C>(stream, args); });
}

}  // namespace megatron::kernels
