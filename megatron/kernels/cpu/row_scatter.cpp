#include "megatron/kernels/cpu/row_scatter.h"

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {
namespace {
/// Columns are dealt to threads in groups of this many: whole cache lines.
constexpr int64_t kColumnGroup = 64;

/// Columns [begin, begin + n) of all sums; n <= kPieceElements.
template <class C>
void sum_columns(const uint64_t* moves, int64_t count, const RowReader<C>& x, const RowWriter<C>& out, int64_t begin,
                 int64_t n, bool accumulate) {
  Piece<C> x_buffer, out_buffer;
  for (int64_t first = 0; first < count;) {
    const auto target = static_cast<int64_t>(moves[first] >> 32);
    C* sum = out.target(target, begin, out_buffer);
    if (!accumulate)
      std::fill_n(sum, n, C(0));
    else
      out.read(target, begin, n, out_buffer);
    for (; first < count && static_cast<int64_t>(moves[first] >> 32) == target; ++first) {
      const C* addend = x.read(static_cast<int64_t>(moves[first] & 0xFFFFFFFFu), begin, n, x_buffer);
      simd_for(n, [=](int64_t i) { sum[i] += addend[i]; });
    }
    out.store(target, begin, n, sum);
  }
}
}  // namespace

RowScatter::RowScatter(const View& workspace)
    : moves_(workspace.defined() ? reinterpret_cast<uint64_t*>(workspace.as<uint8_t>()) : nullptr),
      capacity_(workspace.defined() ? workspace.num_elements() / 8 : 0) {}

void RowScatter::add(int64_t source, int64_t target) {
  require<InternalError>(count_ < capacity_, "[kernels] the workspace has room for {} moves of rows", capacity_);
  moves_[count_++] = static_cast<uint64_t>(target) << 32 | static_cast<uint64_t>(source);
}

void RowScatter::run(const CpuStream& stream, const ConstView& x, const View& out, bool accumulate) {
  if (!accumulate) fill(stream, {.y = out});
  std::sort(moves_, moves_ + count_);
  const int64_t h = x.shape[-1], num_groups = (h + kColumnGroup - 1) / kColumnGroup;
  dispatch_compute(x.dtype, [&]<class C>() {
    const RowReader<C> x_rows(x);
    const RowWriter<C> out_rows(out);
    parallel_for(stream, num_groups, kColumnGroup * count_, [&](int64_t group, int64_t end_group) {
      const int64_t first_column = group * kColumnGroup, end_column = std::min(h, end_group * kColumnGroup);
      for_each_piece(end_column - first_column, [&](int64_t begin, int64_t n) {
        sum_columns<C>(moves_, count_, x_rows, out_rows, first_column + begin, n, accumulate);
      });
    });
  });
}

}  // namespace megatron::kernels
