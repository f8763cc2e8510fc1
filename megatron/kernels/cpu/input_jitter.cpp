#include "megatron/kernels/input_jitter.h"

#include "megatron/kernels/cpu/rows.h"

namespace megatron::kernels {
namespace {

template <class C>
void jitter(const CpuStream& stream, const InputJitterArgs& args) {
  const RowReader<C> x(args.x);
  const RowWriter<C> y(args.y);
  const C lowest = static_cast<C>(1 - args.eps), unit = static_cast<C>(2 * args.eps / 4294967296.0);
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, y_buffer;
    const C* in = x.read(row, begin, n, x_buffer);
    C* out = y.target(row, begin, y_buffer);
    const int64_t global = args.rows(row);
    for (int64_t i = 0; i < n; ++i)
      out[i] = in[i] * (lowest + unit * static_cast<C>(draw(args.key, args.state->step, global, begin + i)));
    y.store(row, begin, n, out);
  });
}

}  // namespace

void input_jitter(const CpuStream& stream, const InputJitterArgs& args) {
  dispatch_compute(args.y.dtype, [&]<class C>() { jitter<C>(stream, args); });
}

}  // namespace megatron::kernels
