#include "megatron/kernels/rope.h"

#include <algorithm>

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {
namespace {

/// Heads of a token that a thread rotates by the angles that it has read.
constexpr int kHeadsAhead = 2;

/// WholeRows in groups: heads of one part of the mixed query, key and value of each group.
struct GroupedRows {
  char* data = nullptr;
  int64_t group_size = 1, group_stride = 0, stride = 0;
  static constexpr DType dtype = DType::kBFloat16;

  GroupedRows() = default;
  explicit GroupedRows(const Operand& x) : data(x.data) {
    if (x.rows.num > 0) group_stride = x.rows.strides[0];
    if (x.rows.num > 1) group_size = x.rows.sizes[1], stride = x.rows.strides[1];
  }
  __device__ int64_t at(int64_t row, int64_t column) const {
    const Divided place = divide(row, group_size);
    return place.quotient * group_stride + place.remainder * stride + column;
  }
};

}  // namespace

template <>
inline constexpr bool kIsWhole<GroupedRows> = true;

namespace {

/// A row is kHeadsAhead heads; its columns are the pairs, and after them as many packs as the unrotated rest needs.
/// Both elements of a pair belong to one thread, so that y may be x.
template <class X>
struct Rotate {
  X x, y;
  const float *cos, *sin;
  SequenceLayoutView layout;
  int64_t heads, half, d;
  bool is_halves, has_whole_packs;  // of angles
  float sign;

  __device__ void operator()(int64_t row, int64_t begin, int) const {
    const Divided place = divide(row, (heads + kHeadsAhead - 1) / kHeadsAhead);
    const int64_t token = place.quotient, first_head = place.remainder * kHeadsAhead;
    const int num_heads = static_cast<int>(min(heads - first_head, int64_t{kHeadsAhead}));
    const int64_t head = token * heads + first_head, rotated = (half + kPack - 1) / kPack * kPack;
    if (begin < rotated)
      rotate(token, head, num_heads, begin);
    else if (y.data != x.data)
      copy_rest(head, num_heads, 2 * half + begin - rotated);
  }

  __device__ void copy_rest(int64_t head, int num_heads, int64_t column) const {
    if (column >= d) return;
    const int n = pack_size(d, column);
    for (int i = 0; i < num_heads; ++i) store(y, head + i, column, n, load(x, head + i, column, n));
  }

  __device__ Pack angles_at(const float* table, int64_t i, int n) const {
    if (has_whole_packs) return convert(load_whole(reinterpret_cast<const char*>(table + i), DType::kFloat32));
    Pack pack;
#pragma unroll
    for (int e = 0; e < kPack; ++e) pack.v[e] = e < n ? table[i + e] : 0;
    return pack;
  }

  /// Pairs [begin, begin + 8): elements of two packs half a head apart, or of two adjacent packs.
  __device__ void rotate(int64_t token, int64_t head, int num_heads, int64_t begin) const {
    const int n = pack_size(half, begin);
    const int64_t first = is_halves ? begin : 2 * begin, second = is_halves ? begin + half : 2 * begin + kPack;
    const int num_first = is_halves ? n : min(2 * n, kPack), num_second = is_halves ? n : max(2 * n - kPack, 0);
    RawPack a_raw[kHeadsAhead], b_raw[kHeadsAhead];
#pragma unroll
    for (int i = 0; i < kHeadsAhead; ++i) {
      if (i >= num_heads) continue;
      a_raw[i] = load_raw(x, head + i, first, num_first);
      b_raw[i] = load_raw(x, head + i, second, num_second);
    }
    const int64_t angle = position_of(layout, token) * half + begin;
    const Pack c = angles_at(cos, angle, n), s = angles_at(sin, angle, n);
#pragma unroll
    for (int i = 0; i < kHeadsAhead; ++i) {
      if (i >= num_heads) continue;
      Pack a = convert(a_raw[i]), b = convert(b_raw[i]);
      if (is_halves)
        rotate_halves(a, b, c, s);
      else
        rotate_neighbours(a, b, c, s);
      store(y, head + i, first, num_first, a);
      store(y, head + i, second, num_second, b);
    }
  }

  __device__ void rotate_pair(float& a, float& b, float c, float s) const {
    const float first = a, second = b, sine = sign * s;
    a = first * c - second * sine;
    b = second * c + first * sine;
  }
  __device__ void rotate_halves(Pack& a, Pack& b, const Pack& c, const Pack& s) const {
#pragma unroll
    for (int e = 0; e < kPack; ++e) rotate_pair(a.v[e], b.v[e], c.v[e], s.v[e]);
  }
  __device__ void rotate_neighbours(Pack& a, Pack& b, const Pack& c, const Pack& s) const {
#pragma unroll
    for (int e = 0; e < kPack; e += 2) {
      rotate_pair(a.v[e], a.v[e + 1], c.v[e / 2], s.v[e / 2]);
      rotate_pair(b.v[e], b.v[e + 1], c.v[(kPack + e) / 2], s.v[(kPack + e) / 2]);
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
  require<DtypeError>(dtype == DType::kFloat32, "[rope] tables of {} on CUDA: choose float32.", dtype);
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
  if (args.x.num_elements() == 0) return;
  const int64_t d = args.x.shape[-1], half = args.cos.shape[1];
  const int64_t heads = args.x.num_elements() / (args.x.shape[0] * args.x.shape[1] * d);
  const auto is_aligned = [](const ConstView& table) { return reinterpret_cast<uintptr_t>(table.data) % 16 == 0; };
  Operand x(args.x), y(args.y);
  // The second half and the rest must begin at whole packs too.
  const bool are_whole = half % kPack == 0 && d % kPack == 0;
  x.is_vectorised &= half % kPack == 0;
  y.is_vectorised &= half % kPack == 0;
  Extent extent(args.x);
  const auto whole_packs = [](int64_t n) { return (n + kPack - 1) / kPack * kPack; };
  extent.columns = whole_packs(half) + whole_packs(d - 2 * half);
  extent.rows = extent.rows / heads * ((heads + kHeadsAhead - 1) / kHeadsAhead);
  const auto run = [&](auto type) {
    using X = decltype(type);
    for_each_pack(
        stream, "rope", extent,
        Rotate<X>{X(x), X(y), args.cos.as<float>(), args.sin.as<float>(), args.layout, heads, half, d,
                  args.pairs == RopePairs::kHalves, half % kPack == 0 && is_aligned(args.cos) && is_aligned(args.sin),
                  args.inverse ? -1.0f : 1.0f});
  };
  const auto are_grouped = [](const Operand& rows) {
    return rows.dtype == GroupedRows::dtype && rows.is_vectorised && rows.rows.num <= 2;
  };
  if (are_whole && are_grouped(x) && are_grouped(y) && std::max(x.rows.num, y.rows.num) == 2) return run(GroupedRows());
  with_operand_type(are_whole ? d : 1, {x, y}, run);
}

}  // namespace megatron::kernels
