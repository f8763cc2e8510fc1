#include "megatron/kernels/rope.h"

#include <cmath>

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
/// Elements of work that one cosine and sine in fp64 stand for.
constexpr int64_t kCostOfAngle = 32;

/// y may be x.
template <class C>
void rotate_head(const C* x, const C* cos, const C* sin, int64_t half, RopePairs pairs, C sign, C* y) {
  if (pairs == RopePairs::kHalves) {
    simd_for(half, [=](int64_t i) {
      const C a = x[i], b = x[i + half], s = sign * sin[i];
      y[i] = a * cos[i] - b * s;
      y[i + half] = b * cos[i] + a * s;
    });
  } else {
    simd_for(half, [=](int64_t i) {
      const C a = x[2 * i], b = x[2 * i + 1], s = sign * sin[i];
      y[2 * i] = a * cos[i] - b * s;
      y[2 * i + 1] = b * cos[i] + a * s;
    });
  }
}

template <class C>
void rotate(const CpuStream& stream, const RopeArgs& args) {
  const int64_t s = args.x.shape[0], b = args.x.shape[1], d = args.x.shape[-1], half = args.cos.shape[1];
  if (args.x.num_elements() == 0) return;
  const int64_t n = args.x.num_elements() / (s * b * d);
  require<NotSupported>(d <= kPieceElements, "[rope] heads of {} elements; this kernel takes up to {}", d,
                        kPieceElements);
  const RowReader<C> x_heads(args.x);
  const RowWriter<C> y_heads(args.y);
  const C *cos = args.cos.as<C>(), *sin = args.sin.as<C>(), sign = args.inverse ? C(-1) : C(1);
  parallel_for(stream, s * b, n * d, [&](int64_t row, int64_t end) {
    Piece<C> x_buffer, y_buffer;
    for (; row < end; ++row) {
      const int64_t angles = args.layout.position(row / b, row % b) * half;
      for (int64_t head = row * n; head < (row + 1) * n; ++head) {
        const C* x = x_heads.read(head, 0, d, x_buffer);
        C* y = y_heads.target(head, 0, y_buffer);
        rotate_head(x, cos + angles, sin + angles, half, args.pairs, sign, y);
        if (y != x) std::copy(x + 2 * half, x + d, y + 2 * half);
        y_heads.store(head, 0, d, y);
      }
    }
  });
}

template <class C>
void make_table(const CpuStream& stream, const RopeTableArgs& args) {
  const double* frequencies = args.frequencies.as<double>();
  const int64_t half = args.cos.shape[1];
  C *cos = args.cos.as<C>(), *sin = args.sin.as<C>();
  parallel_for(stream, args.cos.shape[0], kCostOfAngle * half, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(args.first_position + row) * frequencies[i];
        cos[row * half + i] = static_cast<C>(args.magnitude * std::cos(angle));
        sin[row * half + i] = static_cast<C>(args.magnitude * std::sin(angle));
      }
    }
  });
}
}  // namespace

void rope_table(const CpuStream& stream, const RopeTableArgs& args) {
  dispatch_compute(args.cos.dtype, [&]<class C>() { make_table<C>(stream, args); });
}

void rope(const CpuStream& stream, const RopeArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() { rotate<C>(stream, args); });
}

}  // namespace megatron::kernels
