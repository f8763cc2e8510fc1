// Tile kernels for x86-64-v3: 256-bit vectors, 16 registers, fused multiply-add.
#include <immintrin.h>

#include <cmath>

#include "megatron/kernels/cpu/attention_tile.h"
#include "megatron/kernels/cpu/instruction_set.h"
#include "megatron/kernels/cpu/matmul_tile.h"

// The code of the headers above stays plain x86-64, as in tiles_avx512.cpp.
#pragma GCC target("arch=x86-64-v3")

#include "megatron/kernels/cpu/attention_backward_tile.h"
#include "megatron/kernels/cpu/attention_forward_tile.h"
#include "megatron/kernels/cpu/matmul_block.h"

namespace megatron::kernels {

struct Avx2 {
  static constexpr int64_t kVectorBytes = 32;
  static constexpr int kAccumulators = 12;
  using Floats = VectorOf<float, 32>::Type;
  using Doubles = VectorOf<double, 32>::Type;
  using Words = VectorOf<uint64_t, 32>::Type;

  [[gnu::always_inline]] static inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
    return _mm256_fmadd_pd(a, b, c);
  }
  [[gnu::always_inline]] static inline Words multiply_low_halves(Words a, Words b) {
    return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)b);
  }
  [[gnu::always_inline]] static inline Floats load_half(const uint16_t* x) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  [[gnu::always_inline]] static inline void store_half(uint16_t* y, Floats x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y), _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
};

template void attention_forward_tile<Avx2>(const AttentionForwardTile<float>&);
template void attention_forward_tile<Avx2>(const AttentionForwardTile<double>&);
template void attention_backward_tile<Avx2>(const AttentionBackwardTile<float>&);
template void attention_backward_tile<Avx2>(const AttentionBackwardTile<double>&);
template void attention_store_sums<Avx2>(const float*, int64_t, int64_t, float, const TileTarget&);
template void attention_store_sums<Avx2>(const double*, int64_t, int64_t, double, const TileTarget&);
template void matmul_tile<Avx2, float>(const MatmulTile&);
template void matmul_tile<Avx2, double>(const MatmulTile&);

}  // namespace megatron::kernels
