#include "megatron/kernels/cpu/dropout_mask.h"

#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
struct Words {
  uint32_t a, b, c, d;
};

/// philox() of core/random.h in a form that the compiler keeps in vector registers, one counter per lane.
inline Words philox_rounds(uint32_t key0, uint32_t key1, Words counter) {
  auto [a, b, c, d] = counter;
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * a, p1 = uint64_t{0xCD9E8D57u} * c;
    a = static_cast<uint32_t>(p1 >> 32) ^ b ^ key0;
    c = static_cast<uint32_t>(p0 >> 32) ^ d ^ key1;
    b = static_cast<uint32_t>(p1);
    d = static_cast<uint32_t>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {a, b, c, d};
}
}  // namespace

template <class C>
void dropout_factors(const DropoutMask& mask, int64_t row, int64_t begin, int64_t n, C* factors) {
  const int64_t first = mask.first_feature + begin, first_block = first / 4, skip = first % 4;
  const int64_t num_blocks = (skip + n + 3) / 4, global_row = mask.rows(row);
  const uint32_t key0 = static_cast<uint32_t>(mask.key.value), key1 = static_cast<uint32_t>(mask.key.value >> 32);
  const uint32_t row0 = static_cast<uint32_t>(global_row), row1 = static_cast<uint32_t>(global_row >> 32);
  const uint32_t step = static_cast<uint32_t>(mask.state->step), block0 = static_cast<uint32_t>(first_block);
  alignas(64) uint32_t buffer[kPieceElements + 8];
  uint32_t* const draws = buffer;
  simd_for(num_blocks, [=](int64_t block) {
    const Words w = philox_rounds(key0, key1, {block0 + static_cast<uint32_t>(block), row0, row1, step});
    draws[4 * block] = w.a;
    draws[4 * block + 1] = w.b;
    draws[4 * block + 2] = w.c;
    draws[4 * block + 3] = w.d;
  });
  const uint32_t threshold = dropout_threshold(mask.rate);
  const C kept = static_cast<C>(1 / (1 - mask.rate));
  const uint32_t* draw = draws + skip;
  simd_for(n, [=](int64_t i) { factors[i] = draw[i] < threshold ? C(0) : kept; });
}

template void dropout_factors<float>(const DropoutMask&, int64_t, int64_t, int64_t, float*);
template void dropout_factors<double>(const DropoutMask&, int64_t, int64_t, int64_t, double*);

}  // namespace megatron::kernels
