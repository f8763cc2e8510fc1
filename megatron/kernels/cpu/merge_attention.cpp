#include "megatron/kernels/merge_attention.h"

#include <cmath>

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {

template <class C>
void merge(const CpuStream& stream, const MergeAttentionArgs& args) {
  const RowReader<C> o(args.o);
  const RowWriter<C> sum_o(args.sum_o);
  const C* lse = args.lse.as<C>();
  C* sum_lse = args.sum_lse.as<C>();
  const int64_t b = args.o.shape[1], n = args.o.shape[2], s = args.o.shape[0], dv = args.o.shape[3];
  parallel_for(stream, s * b * n, dv, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t i = (row % n * b + row / n % b) * s + row / (n * b);
      if (lse[i] == -std::numeric_limits<C>::infinity()) continue;
      const C least = std::min(lse[i], sum_lse[i]), most = std::max(lse[i], sum_lse[i]);
      const C merged = most + std::log1p(std::exp(least - most));
      const C kept = std::exp(sum_lse[i] - merged), added = std::exp(lse[i] - merged);
      for_each_piece(dv, [&](int64_t first, int64_t length) {
        Piece<C> o_buffer, sum_buffer;
        const C *x = o.read(row, first, length, o_buffer), *before = sum_o.read(row, first, length, sum_buffer);
        C* after = sum_o.target(row, first, sum_buffer);
        simd_for(length, [=](int64_t e) { after[e] = kept * before[e] + added * x[e]; });
        sum_o.store(row, first, length, after);
      });
      sum_lse[i] = merged;
    }
  });
}

}  // namespace

void merge_attention(const CpuStream& stream, const MergeAttentionArgs& args) {
  require<ShapeError>(args.sum_o.shape == args.o.shape && args.sum_lse.shape == args.lse.shape &&
                          args.lse.shape == Shape{args.o.shape[2], args.o.shape[1], args.o.shape[0]} &&
                          args.lse.is_contiguous() && args.sum_lse.is_contiguous(),
                      "[merge_attention] o {}, lse {}, sum_o {} and sum_lse {} are not [s, b, n, dv] and contiguous "
                      "[n, b, s].",
                      args.o.shape, args.lse.shape, args.sum_o.shape, args.sum_lse.shape);
  dispatch_compute(args.sum_o.dtype, [&]<class C>() { merge<C>(stream, args); });
}

}  // namespace megatron::kernels
