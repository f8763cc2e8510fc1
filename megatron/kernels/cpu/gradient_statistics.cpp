#include "megatron/kernels/gradient_statistics.h"

#include <atomic>
#include <cmath>

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
/// Sum over x of f(pointer, n), formed over pieces of kStatisticsPiece in `workspace` and added in order.
template <class C, class F>
double ordered_sum(const CpuStream& stream, const ConstView& x, const View& workspace, F f) {
  const int64_t size = x.num_elements(), num_parts = (size + kStatisticsPiece - 1) / kStatisticsPiece;
  require<InternalError>(num_parts == 0 || workspace.num_elements() >= gradient_statistics_workspace_bytes(size),
                         "[kernels] {} bytes of workspace are needed for {} gradients",
                         gradient_statistics_workspace_bytes(size), size);
  if (num_parts == 0) return 0;
  double* parts = reinterpret_cast<double*>(workspace.as<uint8_t>());
  const RowReader<C> values(x);
  parallel_for(stream, num_parts, std::min(size, kStatisticsPiece), [&](int64_t part, int64_t end_part) {
    Piece<C> buffer;
    for (; part < end_part; ++part) {
      const int64_t first = part * kStatisticsPiece;
      parts[part] = 0;
      for_each_piece(std::min(kStatisticsPiece, size - first),
                     [&](int64_t begin, int64_t n) { parts[part] += f(values.read(0, first + begin, n, buffer), n); });
    }
  });
  double sum = 0;
  for (int64_t part = 0; part < num_parts; ++part) sum += parts[part];
  return sum;
}
}  // namespace

void squared_norm(const CpuStream& stream, const SquaredNormArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    const double sum = ordered_sum<C>(stream, args.x, args.workspace, [](const C* x, int64_t n) {
      return simd_sum<double>(n, [=](int64_t i) { return static_cast<double>(x[i]) * static_cast<double>(x[i]); });
    });
    *args.result = args.accumulate ? *args.result + sum : sum;
  });
}

void count_zeros(const CpuStream& stream, const CountZerosArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    const double sum = ordered_sum<C>(stream, args.x, args.workspace, [](const C* x, int64_t n) {
      return static_cast<double>(simd_sum<C>(n, [=](int64_t i) { return x[i] == 0 ? C(1) : C(0); }));
    });
    *args.result = args.accumulate ? *args.result + sum : sum;
  });
}

void check_finite(const CpuStream& stream, const CheckFiniteArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    const RowReader<C> values(args.x);
    parallel_pieces(stream, 1, args.x.num_elements(), [&](int64_t, int64_t begin, int64_t n) {
      Piece<C> buffer;
      const C* x = values.read(0, begin, n, buffer);
      // The difference of equals is 0 but for infinities and NaN, where it is NaN.
      const C bad = simd_sum<C>(n, [=](int64_t i) { return x[i] - x[i] == 0 ? C(0) : C(1); });
      if (bad > 0) std::atomic_ref(args.state->found_inf).store(1, std::memory_order_relaxed);
    });
  });
}

void clip_factor(const CpuStream&, const ClipFactorArgs& args) {
  const double norm = std::sqrt(*args.squared_norm) * args.state->inverse_scale;
  *args.norm = norm;
  args.state->clip_factor = args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1;
}

}  // namespace megatron::kernels
