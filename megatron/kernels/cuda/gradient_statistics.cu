#include "megatron/kernels/gradient_statistics.h"

#include <math_constants.h>

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

__extension__ typedef __int128 Int128;

constexpr int kLimbBits = 43;
constexpr int64_t kLimbMask = (int64_t{1} << kLimbBits) - 1;
/// A thread sums at most kStatisticsPiece multiples of 2^-38 and of 2^-76, as on CPU, which is exact in any order.
constexpr double kRoundCoarse = 0x1.8p14, kRoundFine = 0x1.8p-24;
constexpr double kCoarse = 0x1p38, kFine = 0x1p76;
constexpr int kFinishThreads = 1024;

/// The exact result of one block: the bits of a maximum, and a count or the two sums of squared_sum in units of 2^-38
/// and of 2^-76.
struct Part {
  int64_t largest = 0, first = 0, second = 0;
};
__device__ Part join(const Part& a, const Part& b) {
  return {max(a.largest, b.largest), a.first + b.first, a.second + b.second};
}

/// Pieces of a block, of which each thread sums at most one in doubles, and the number of blocks.
constexpr int64_t kMostBlockPieces = kBlockThreads, kWantedBlocks = 4096;

__device__ double larger_or_nan(double a, double b) { return a > b || isnan(a) ? a : b; }

/// e with 2^(e-1) <= largest < 2^e, not so low that 2^-e overflows.
__device__ int exponent_of(double largest) {
  int exponent = 0;
  frexp(largest, &exponent);
  return max(exponent, -1000);
}

/// Says whether the squares summed for `guess` are valid for `largest`. If not, they are meaningless: elements
/// above the guess overflow its scale.
__device__ bool has_scale_of(const double* guess, const double* largest) {
  return guess && isfinite(*guess) && isfinite(*largest) && exponent_of(*guess) == exponent_of(*largest);
}

__device__ Int128 from_limbs(const int64_t* limbs) {
  return Int128{limbs[0]} + (Int128{limbs[1]} << kLimbBits) + (Int128{limbs[2]} << (2 * kLimbBits));
}

/// Reduces over the block; thread 0 has the result, others part of it. Combine is exact, so its order does not matter.
template <class T, class Combine>
__device__ T reduce_block(T value, T* shared, Combine combine) {
  shared[threadIdx.x] = value;
  for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
    __syncthreads();
    if (threadIdx.x < stride) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + stride]);
  }
  return shared[threadIdx.x];
}

/// Without their sign, floating-point numbers are in the order of their bits, NaN above infinity.
struct Largest {
  struct Sum {
    int largest = 0;
  };
  __device__ void look(float x, Sum& sum) const { sum.largest = max(sum.largest, __float_as_int(x) & 0x7FFFFFFF); }
  static __device__ Part part_of(const Sum& sum) { return {.largest = sum.largest}; }
};
struct Zeros {
  struct Sum {
    int count = 0;
  };
  __device__ void look(float x, Sum& sum) const { sum.count += x == 0 ? 1 : 0; }
  static __device__ Part part_of(const Sum& sum) { return {.first = sum.count}; }
};
struct Squares {
  const double* largest;
  const double* guess;  // no work is left if it has the scale of the largest
  double factor = 0;
  struct Sum {
    double coarse = 0, fine = 0;
  };
  __device__ bool is_done() const { return has_scale_of(guess, largest); }
  __device__ void prepare() { factor = isfinite(*largest) ? ldexp(1.0, -exponent_of(*largest)) : 0; }
  /// The square of 24 bits is exact in 53, and so is the remainder of its rounding.
  __device__ void look(float x, Sum& sum) const {
    const double scaled = x * factor, coarse = __dadd_rn(__fma_rn(scaled, scaled, kRoundCoarse), -kRoundCoarse);
    sum.coarse += coarse;
    sum.fine += __dadd_rn(__dadd_rn(__fma_rn(scaled, scaled, -coarse), kRoundFine), -kRoundFine);
  }
  static __device__ Part part_of(const Sum& sum) {
    return {.first = static_cast<int64_t>(sum.coarse * kCoarse), .second = static_cast<int64_t>(sum.fine * kFine)};
  }
};
struct LargestAndSquares {
  Largest largest;
  Squares squares;
  struct Sum {
    Largest::Sum largest;
    Squares::Sum squares;
  };
  __device__ void prepare() { squares.prepare(); }
  __device__ void look(float x, Sum& sum) const {
    largest.look(x, sum.largest);
    squares.look(x, sum.squares);
  }
  static __device__ Part part_of(const Sum& sum) {
    return join(Largest::part_of(sum.largest), Squares::part_of(sum.squares));
  }
};

/// Block i reads `block_size` elements from i * block_size on. Each thread has two packs in flight.
template <class Look>
__global__ void __launch_bounds__(kBlockThreads)
    pieces_kernel(Operand x, int64_t size, int64_t block_size, Part* parts, Look look) {
  constexpr int kAhead = 2;
  constexpr int64_t kStride = kBlockThreads * kPack;
  __shared__ Part shared[kBlockThreads];
  if constexpr (requires { look.is_done(); })
    if (look.is_done()) return;
  if constexpr (requires { look.prepare(); }) look.prepare();
  const int64_t first = blockIdx.x * block_size, end = min(first + block_size, size);
  typename Look::Sum sum;
  for (int64_t i = first + threadIdx.x * kPack; i < end; i += kAhead * kStride) {
    RawPack raw[kAhead];
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead)
      if (const int64_t begin = i + ahead * kStride; begin < end)
        raw[ahead] = load_raw(x, begin * x.step, pack_size(end, begin));
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int64_t begin = i + ahead * kStride;
      if (begin >= end) break;
      const Pack pack = convert(raw[ahead]);
      const int n = pack_size(end, begin);
#pragma unroll
      for (int e = 0; e < kPack; ++e)
        if (e < n) look.look(pack.v[e], sum);
    }
  }
  const Part part = reduce_block(Look::part_of(sum), shared, join);
  if (threadIdx.x == 0) parts[blockIdx.x] = part;
}

/// @return  number of parts.
template <class Look>
int64_t run_pieces(const CudaStream& stream, const ConstView& x, const View& workspace, const Look& look) {
  const int64_t size = x.num_elements(), num_pieces = (size + kStatisticsPiece - 1) / kStatisticsPiece;
  require<InternalError>(num_pieces == 0 || workspace.num_elements() >= gradient_statistics_workspace_bytes(size),
                         "[gradient_statistics] {} bytes of workspace are needed for {} gradients",
                         gradient_statistics_workspace_bytes(size), size);
  if (num_pieces == 0) return 0;
  const int64_t block_size = std::clamp<int64_t>(num_pieces / kWantedBlocks, 1, kMostBlockPieces) * kStatisticsPiece;
  const int64_t num_parts = (size + block_size - 1) / block_size;
  pieces_kernel<<<static_cast<unsigned>(num_parts), kBlockThreads, 0, stream.stream>>>(
      Operand(x), size, block_size, static_cast<Part*>(workspace.data), look);
  check_launch("gradient_statistics");
  return num_parts;
}

__global__ void finish_largest(const Part* parts, int64_t num_parts, double* result, bool accumulate) {
  __shared__ int64_t shared[kFinishThreads];
  int64_t bits = 0;
  for (int64_t i = threadIdx.x; i < num_parts; i += kFinishThreads) bits = max(bits, parts[i].largest);
  bits = reduce_block(bits, shared, [](int64_t a, int64_t b) { return max(a, b); });
  if (threadIdx.x > 0) return;
  double largest = __int_as_float(static_cast<int>(bits));
  if (accumulate) largest = larger_or_nan(largest, *result);
  *result = isnan(largest) ? CUDART_NAN : largest;
}

__global__ void finish_zeros(const Part* parts, int64_t num_parts, int64_t* result, bool accumulate) {
  __shared__ int64_t shared[kFinishThreads];
  int64_t count = 0;
  for (int64_t i = threadIdx.x; i < num_parts; i += kFinishThreads) count += parts[i].first;
  count = reduce_block(count, shared, [](int64_t a, int64_t b) { return a + b; });
  if (threadIdx.x == 0) *result = accumulate ? *result + count : count;
}

__global__ void finish_squares(const Part* parts, int64_t num_parts, const double* largest, const double* guess,
                               int64_t* limbs, bool accumulate) {
  __shared__ Int128 shared[kFinishThreads];
  if (has_scale_of(guess, largest)) return;
  Int128 sum = 0;
  const bool is_finite = isfinite(*largest);
  for (int64_t i = threadIdx.x; is_finite && i < num_parts; i += kFinishThreads)
    sum += Int128{parts[i].first} * Int128{int64_t{1} << 38} + parts[i].second;
  sum = reduce_block(sum, shared, [](Int128 a, Int128 b) { return a + b; });
  if (threadIdx.x != 0) return;
  if (accumulate) sum += from_limbs(limbs);
  limbs[0] = static_cast<int64_t>(sum & kLimbMask);
  limbs[1] = static_cast<int64_t>((sum >> kLimbBits) & kLimbMask);
  limbs[2] = static_cast<int64_t>(sum >> (2 * kLimbBits));
}

/// To the nearest double, ties to even. The device has no conversion of 128 bits.
__device__ double to_double(Int128 value) {
  const auto high = static_cast<int64_t>(value >> 64);
  if (high == 0) return static_cast<double>(static_cast<uint64_t>(value));
  // 64 leading bits, the last of which is set if lower bits were lost: 11 bits more than a double has.
  const int shift = 64 - __clzll(high);
  const auto leading = static_cast<uint64_t>(value >> shift);
  const bool lost = (value & ((Int128{1} << shift) - 1)) != 0;
  return ldexp(static_cast<double>(leading | (lost ? 1 : 0)), shift);
}

__global__ void clip_factor_kernel(ClipFactorArgs args) {
  const double largest = *args.largest;
  double norm = largest;
  if (isfinite(largest)) {
    const double root = sqrt(to_double(from_limbs(args.limbs)) / kFine);
    norm = ldexp(root, exponent_of(largest)) * (args.state ? args.state->inverse_scale : 1);
  }
  *args.norm = norm;
  if (!args.state) return;
  if (args.finds_overflow && !isfinite(largest)) args.state->found_inf = 1;
  if (args.extent_overflow && *args.extent_overflow != 0) args.state->found_inf = 1;
  const double factor = args.max_norm / (norm + 1e-6);
  args.state->clip_factor = args.max_norm > 0 ? (factor < 1.0 ? factor : 1.0) : 1;
}

}  // namespace

void largest_absolute(const CudaStream& stream, const LargestAbsoluteArgs& args) {
  const auto* parts = static_cast<const Part*>(args.workspace.data);
  const int64_t num_parts =
      args.guess ? run_pieces(stream, args.x, args.workspace, LargestAndSquares{{}, Squares{args.guess, nullptr}})
                 : run_pieces(stream, args.x, args.workspace, Largest());
  finish_largest<<<1, kFinishThreads, 0, stream.stream>>>(parts, num_parts, args.result, args.accumulate);
  if (args.guess)
    finish_squares<<<1, kFinishThreads, 0, stream.stream>>>(parts, num_parts, args.guess, nullptr, args.limbs,
                                                            args.accumulate);
  check_launch("largest_absolute");
}

void squared_sum(const CudaStream& stream, const SquaredSumArgs& args) {
  const int64_t num_parts = run_pieces(stream, args.x, args.workspace, Squares{args.largest, args.guess});
  finish_squares<<<1, kFinishThreads, 0, stream.stream>>>(static_cast<const Part*>(args.workspace.data), num_parts,
                                                          args.largest, args.guess, args.limbs, args.accumulate);
  check_launch("squared_sum");
}

void count_zeros(const CudaStream& stream, const CountZerosArgs& args) {
  const int64_t num_parts = run_pieces(stream, args.x, args.workspace, Zeros());
  finish_zeros<<<1, kFinishThreads, 0, stream.stream>>>(static_cast<const Part*>(args.workspace.data), num_parts,
                                                        args.result, args.accumulate);
  check_launch("count_zeros");
}

void clip_factor(const CudaStream& stream, const ClipFactorArgs& args) {
  clip_factor_kernel<<<1, 1, 0, stream.stream>>>(args);
  check_launch("clip_factor");
}

}  // namespace megatron::kernels
