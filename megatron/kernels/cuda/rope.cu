#include "megatron/kernels/cuda/rope.h"

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {
namespace {

/// A row is a head; its columns are the pairs, and after them as many packs as the unrotated rest needs. Both halves of
/// a pair belong to one thread, so that y may be x.
struct Rotate {
  Operand x, y;
  const float *cos, *sin;
  SequenceLayoutView layout;
  int64_t heads, half, d;
  RopePairs pairs;
  float sign;

  __device__ void operator()(int64_t head, int64_t begin, int n) const {
    const int64_t rotated = (half + kPack - 1) / kPack * kPack;
    if (begin >= rotated) {
      const int64_t column = 2 * half + begin - rotated;
      if (column < d && y.data != x.data) {
        const int rest = pack_size(d, column);
        store(y, head, column, rest, load(x, head, column, rest));
      }
      return;
    }
    n = pack_size(half, begin);
    const int64_t angles = position_of(layout, head / heads) * half + begin;
    float c[kPack], s[kPack];
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      c[e] = e < n ? cos[angles + e] : 0;
      s[e] = e < n ? sign * sin[angles + e] : 0;
    }
    if (pairs == RopePairs::kHalves)
      rotate_halves(head, begin, n, c, s);
    else
      rotate_neighbours(head, begin, n, c, s);
  }

  __device__ void rotate_halves(int64_t head, int64_t begin, int n, const float* c, const float* s) const {
    const RawPack a_raw = load_raw(x, head, begin, n), b_raw = load_raw(x, head, begin + half, n);
    Pack a = convert(a_raw), b = convert(b_raw);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const float first = a.v[e], second = b.v[e];
      a.v[e] = first * c[e] - second * s[e];
      b.v[e] = second * c[e] + first * s[e];
    }
    store(y, head, begin, n, a);
    store(y, head, begin + half, n, b);
  }

  /// Pairs [begin, begin + n) are elements 2 begin .. 2 begin + 2 n - 1.
  __device__ void rotate_neighbours(int64_t head, int64_t begin, int n, const float* c, const float* s) const {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int64_t column = 2 * begin + part * kPack;
      const int size = min(2 * n - part * kPack, kPack);
      if (size <= 0) return;
      Pack values = load(x, head, column, size);
#pragma unroll
      for (int e = 0; e < kPack; e += 2) {
        const int pair = part * kPack / 2 + e / 2;
        const float first = values.v[e], second = values.v[e + 1];
        values.v[e] = first * c[pair] - second * s[pair];
        values.v[e + 1] = second * c[pair] + first * s[pair];
      }
      store(y, head, column, size, values);
    }
  }
};

struct Table {
  const double* frequencies;
  float *cos, *sin;
  int64_t half, first_position;
  double magnitude;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    for (int e = 0; e < n; ++e) {
      double sine, cosine;
      sincos(static_cast<double>(first_position + row) * frequencies[begin + e], &sine, &cosine);
      cos[row * half + begin + e] = static_cast<float>(magnitude * cosine);
      sin[row * half + begin + e] = static_cast<float>(magnitude * sine);
    }
  }
};

void require_float(DType dtype) {
  require<NotSupported>(dtype == DType::kFloat32, "[rope] tables of {} on CUDA: choose float32.", dtype);
}

}  // namespace

void rope_table(const CudaStream& stream, const RopeTableArgs& args) {
  require_float(args.cos.dtype);
  for_each_pack(stream, "rope_table", Extent(args.cos),
                Table{args.frequencies.as<double>(), args.cos.as<float>(), args.sin.as<float>(), args.cos.shape[1],
                      args.first_position, args.magnitude});
}

void rope(const CudaStream& stream, const RopeArgs& args) {
  require_float(args.cos.dtype);
  const int64_t heads = args.x.shape[2], d = args.x.shape[3], half = args.cos.shape[1];
  Rotate body{Operand(args.x),
              Operand(args.y),
              args.cos.as<float>(),
              args.sin.as<float>(),
              args.layout,
              heads,
              half,
              d,
              args.pairs,
              args.inverse ? -1.0f : 1.0f};
  // The second half and the rest must begin at whole packs too.
  body.x.is_vectorised &= half % kPack == 0;
  body.y.is_vectorised &= half % kPack == 0;
  Extent extent(args.x);
  const auto whole_packs = [](int64_t n) { return (n + kPack - 1) / kPack * kPack; };
  extent.columns = whole_packs(half) + whole_packs(d - 2 * half);
  for_each_pack(stream, "rope", extent, body);
}

}  // namespace megatron::kernels
