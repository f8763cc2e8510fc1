#include "megatron/kernels/sum_heads.h"

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {

template <class C>
void sum(const CpuStream& stream, const SumHeadsArgs& args) {
  const RowReader<C> x(args.x);
  const RowWriter<C> y(args.y);
  const int64_t num_heads = args.x.shape[2];
  const auto sum_piece = [&](int64_t row, int64_t begin, int64_t n) {
    Piece<C> x_buffer, sums;
    C* total = sums;
    std::fill_n(total, n, C(0));
    for (int64_t head = 0; head < num_heads; ++head) {
      const C* addend = x.read(row * num_heads + head, begin, n, x_buffer);
      simd_for(n, [=](int64_t i) { total[i] += addend[i]; });
    }
    Piece<C> y_buffer;
    C* out = y.target(row, begin, y_buffer);
    std::copy_n(total, n, out);
    y.store(row, begin, n, out);
  };
  parallel_pieces(stream, args.y.num_rows(), args.y.shape[-1], sum_piece, num_heads);
}

}  // namespace

void sum_heads(const CpuStream& stream, const SumHeadsArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() { sum<C>(stream, args); });
}

}  // namespace megatron::kernels
