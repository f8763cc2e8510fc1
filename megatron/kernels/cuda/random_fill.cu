// This file is compiled without fused multiply-add, so that its numbers are those of core/box_muller.h to the bit.
#include "megatron/kernels/cuda/random_fill.h"

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {
namespace {

/// series_log of core/box_muller.h.
__device__ double natural_logarithm(double x) {
  constexpr unsigned long long kSqrtHalf = 0x3FE6A09E667F3BCD, kExponentMask = 0xFFF0000000000000,
                               kBias = 1024ull << 52;
  const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(x));
  const unsigned long long shifted = bits - kSqrtHalf + kBias;
  const double m = __longlong_as_double(static_cast<long long>(bits - (shifted & kExponentMask) + kBias));
  const double e = static_cast<double>(static_cast<long long>(shifted >> 52) - 1024);
  const double f = (m - 1) / (m + 1), s = f * f;
  double p = 1.0 / 23;
#pragma unroll
  for (int denominator = 21; denominator >= 3; denominator -= 2) p = p * s + 1.0 / denominator;
  return e * std::numbers::ln2 + (2 * f + 2 * f * (s * p));
}

/// turn of core/box_muller.h.
__device__ double2 cosine_and_sine(uint32_t r) {
  const uint32_t quarter = (r + (uint32_t{1} << 29)) >> 30;
  const double x = static_cast<double>(static_cast<int32_t>(r - (quarter << 30))) * (2 * std::numbers::pi * 0x1p-32);
  const double z = x * x;
  double s = 1.0 / 355687428096000;
  s = s * z - 1.0 / 1307674368000;
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = x + x * (z * s);
  double c = 1.0 / 20922789888000;
  c = c * z - 1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = 1 - (0.5 * z - z * z * c);
  const bool odd = (quarter & 1) != 0;
  const double sine = odd ? c : s, cosine = odd ? s : c;
  return {((quarter + 1) & 2) != 0 ? -cosine : cosine, (quarter & 2) != 0 ? -sine : sine};
}

/// box_muller of core/box_muller.h.
__device__ double2 two_normals(uint32_t radius_draw, uint32_t angle_draw) {
  const double radius = sqrt(-2 * natural_logarithm((radius_draw + 0.5) * 0x1p-32));
  const double2 angle = cosine_and_sine(angle_draw);
  return {radius * angle.x, radius * angle.y};
}

struct FillNormal {
  Operand y;
  DeviceOffsets global_rows;
  uint64_t key;
  int64_t global_offset;
  double std;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const int64_t first = global_offset + global_rows(row) + begin;
    Pack pack = {};
    // At most three blocks of four numbers.
    double z[4];
    int64_t block = -1;
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      if (e >= n) continue;
      if ((first + e) / 4 != block) {
        block = (first + e) / 4;
        const Draws r = draw_four(key, 0, block >> 32, block);
        const double2 a = two_normals(r.w[0], r.w[1]), b = two_normals(r.w[2], r.w[3]);
        z[0] = a.x, z[1] = a.y, z[2] = b.x, z[3] = b.y;
      }
      const int lane = static_cast<int>((first + e) % 4);
      const double value = lane == 0 ? z[0] : lane == 1 ? z[1] : lane == 2 ? z[2] : z[3];
      pack.v[e] = static_cast<float>(std * value);
    }
    store(y, row, begin, n, pack);
  }
};

}  // namespace

void fill_normal(const CudaStream& stream, const NormalFillArgs& args) {
  const DeviceOffsets global_rows(args.y.shape, args.global_strides, args.y.shape.rank() - 1);
  for_each_pack(stream, "fill_normal", Extent(args.y),
                FillNormal{Operand(args.y), global_rows, args.key.value, args.global_offset, args.std});
}

}  // namespace megatron::kernels
