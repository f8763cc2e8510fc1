#include "megatron/kernels/cpu/column_sums.h"

#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {

template <class C>
void ColumnSums<C>::store(const CpuStream& stream, int64_t first_column, const View& out, bool accumulate) const {
  const RowWriter<C> writer(out);
  const int64_t n = out.num_elements(), num_pieces = (n + kPieceElements - 1) / kPieceElements;
  parallel_for(stream, num_pieces, kPieceElements * num_parts_, [&](int64_t piece, int64_t end_piece) {
    Piece<C> sum_buffer, old_buffer;
    for (; piece < end_piece; ++piece) {
      const int64_t begin = piece * kPieceElements, length = std::min(kPieceElements, n - begin);
      C* sum = sum_buffer;
      std::fill_n(sum, length, C(0));
      for (int64_t part = 0; part < num_parts_; ++part) {
        const C* addend = data_ + part * num_columns_ + first_column + begin;
        simd_for(length, [=](int64_t i) { sum[i] += addend[i]; });
      }
      C* target = writer.target(0, begin, sum);
      if (accumulate) {
        const C* old = writer.read(0, begin, length, old_buffer);
        simd_for(length, [=](int64_t i) { target[i] = old[i] + sum[i]; });
      } else if (target != sum) {
        std::copy_n(sum, length, target);
      }
      writer.store(0, begin, length, target);
    }
  });
}
template class ColumnSums<float>;
template class ColumnSums<double>;

void column_sum(const CpuStream& stream, const ColumnSumArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    const int64_t f = args.x.shape[-1];
    const RowReader<C> x(args.x);
    const ColumnSums<C> sums(args.workspace, args.x.num_elements() / std::max<int64_t>(f, 1), f);
    sums.for_each_row(stream, args.x.num_rows(), f, [&](int64_t row, C* sum) {
      Piece<C> buffer;
      for_each_piece(f, [&](int64_t begin, int64_t n) {
        const C* values = x.read(row, begin, n, buffer);
        C* piece = sum + begin;
        simd_for(n, [=](int64_t i) { piece[i] += values[i]; });
      });
    });
    sums.store(stream, 0, args.out, args.accumulate);
  });
}

}  // namespace megatron::kernels
