#include "megatron/kernels/gradient_statistics.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "megatron/kernels/cpu/rows.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {

__extension__ typedef __int128 Int128;

constexpr int kLimbBits = 43;
constexpr int64_t kLimbMask = (int64_t{1} << kLimbBits) - 1;

/// Adding and subtracting these rounds to multiples of 2^-38 and of 2^-76. The sums of kStatisticsPiece = 2^14 such
/// multiples are below 2^52 of them, so they are exact in any order.
constexpr double kRoundCoarse = 0x1.8p14, kRoundFine = 0x1.8p-24;
constexpr double kCoarse = 0x1p38, kFine = 0x1p76;

/// The result of one piece: a maximum, a count, or the two sums of squared_sum.
struct Part {
  double first = 0, second = 0;
};

/// combine(part) for each piece of x in order, where f(pointer, n, part) has seen all of it.
template <class C, class F, class Combine>
void for_each_part(const CpuStream& stream, const ConstView& x, const View& workspace, F f, Combine combine) {
  const int64_t size = x.num_elements(), num_parts = (size + kStatisticsPiece - 1) / kStatisticsPiece;
  require<InternalError>(num_parts == 0 || workspace.num_elements() >= gradient_statistics_workspace_bytes(size),
                         "[kernels] {} bytes of workspace are needed for {} gradients",
                         gradient_statistics_workspace_bytes(size), size);
  if (num_parts == 0) return;
  Part* parts = reinterpret_cast<Part*>(workspace.as<uint8_t>());
  const RowReader<C> values(x);
  parallel_for(stream, num_parts, std::min(size, kStatisticsPiece), [&](int64_t number, int64_t end) {
    Piece<C> buffer;
    for (; number < end; ++number) {
      const int64_t first = number * kStatisticsPiece;
      Part part;
      for_each_piece(std::min(kStatisticsPiece, size - first),
                     [&](int64_t begin, int64_t n) { f(values.read(0, first + begin, n, buffer), n, part); });
      parts[number] = part;
    }
  });
  for (int64_t number = 0; number < num_parts; ++number) combine(parts[number]);
}

double larger_or_nan(double a, double b) { return a > b || std::isnan(a) ? a : b; }

/// e with 2^(e-1) <= largest < 2^e, not so low that 2^-e overflows.
int exponent_of(double largest) {
  int exponent = 0;
  std::frexp(largest, &exponent);
  return std::max(exponent, -1000);
}

Int128 from_limbs(const int64_t* limbs) {
  return Int128{limbs[0]} + (Int128{limbs[1]} << kLimbBits) + (Int128{limbs[2]} << (2 * kLimbBits));
}

}  // namespace

void largest_absolute(const CpuStream& stream, const LargestAbsoluteArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    double largest = args.accumulate ? *args.result : 0;
    // Without their sign, floating-point numbers have the order of their bits, with NaN above infinity.
    using Bits = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
    constexpr Bits kWithoutSign = std::numeric_limits<Bits>::max();
    const auto look = [](const C* x, int64_t n, Part& part) {
      const Bits most = simd_max<Bits>(n, [=](int64_t i) { return std::bit_cast<Bits>(x[i]) & kWithoutSign; });
      part.first = larger_or_nan(part.first, static_cast<double>(std::bit_cast<C>(most)));
    };
    for_each_part<C>(stream, args.x, args.workspace, look,
                     [&](const Part& part) { largest = larger_or_nan(largest, part.first); });
    *args.result = largest;
  });
}

void squared_sum(const CpuStream& stream, const SquaredSumArgs& args) {
  Int128 sum = args.accumulate ? from_limbs(args.limbs) : 0;
  if (std::isfinite(*args.largest))
    dispatch_compute(args.x.dtype, [&]<class C>() {
      const double factor = std::ldexp(1.0, -exponent_of(*args.largest));
      const auto add = [=](const C* x, int64_t n, Part& part) {
        const auto [coarse, fine] = simd_two_sums<double>(n, [=](int64_t i) {
          const double scaled = static_cast<double>(x[i]) * factor, square = scaled * scaled;
          const double rounded = square + kRoundCoarse - kRoundCoarse;
          return std::pair(rounded, square - rounded + kRoundFine - kRoundFine);
        });
        part.first += coarse;
        part.second += fine;
      };
      for_each_part<C>(stream, args.x, args.workspace, add, [&](const Part& part) {
        sum += Int128{static_cast<int64_t>(part.first * kCoarse)} * Int128{int64_t{1} << 38};
        sum += static_cast<int64_t>(part.second * kFine);
      });
    });
  args.limbs[0] = static_cast<int64_t>(sum & kLimbMask);
  args.limbs[1] = static_cast<int64_t>((sum >> kLimbBits) & kLimbMask);
  args.limbs[2] = static_cast<int64_t>(sum >> (2 * kLimbBits));
}

void count_zeros(const CpuStream& stream, const CountZerosArgs& args) {
  dispatch_compute(args.x.dtype, [&]<class C>() {
    int64_t count = args.accumulate ? *args.result : 0;
    for_each_part<C>(
        stream, args.x, args.workspace,
        [](const C* x, int64_t n, Part& part) {
          part.first += static_cast<double>(simd_sum<C>(n, [=](int64_t i) { return x[i] == 0 ? C(1) : C(0); }));
        },
        [&](const Part& part) { count += static_cast<int64_t>(part.first); });
    *args.result = count;
  });
}

void clip_factor(const CpuStream&, const ClipFactorArgs& args) {
  const double largest = *args.largest;
  double norm = largest;
  if (std::isfinite(largest)) {
    const double root = std::sqrt(static_cast<double>(from_limbs(args.limbs)) / kFine);
    norm = std::ldexp(root, exponent_of(largest)) * (args.state ? args.state->inverse_scale : 1);
  }
  *args.norm = norm;
  if (!args.state) return;
  if (args.finds_overflow && !std::isfinite(largest)) args.state->found_inf = 1;
  if (args.extent_overflow && *args.extent_overflow != 0) args.state->found_inf = 1;
  args.state->clip_factor = args.max_norm > 0 ? std::min(1.0, args.max_norm / (norm + 1e-6)) : 1;
}

}  // namespace megatron::kernels
