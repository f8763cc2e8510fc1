// Tile kernels for x86-64-v4: 512-bit vectors, 32 registers.
#include <immintrin.h>

#include <cmath>

#include "megatron/kernels/cpu/attention_tile.h"
#include "megatron/kernels/cpu/instruction_set.h"
#include "megatron/kernels/cpu/matmul_tile.h"

// Only the code below may use the wider instructions: code of the headers above stays plain x86-64, so that
// no inline function with wider instructions reaches other files.
#pragma GCC target("arch=x86-64-v4")

#include "megatron/kernels/cpu/attention_backward_tile.h"
#include "megatron/kernels/cpu/attention_forward_tile.h"
#include "megatron/kernels/cpu/matmul_block.h"

namespace megatron::kernels {

// Intrinsics with a full mask: the unmasked ones of g++ 12 read an undefined vector, which warns.
struct Avx512 {
  static constexpr int64_t kVectorBytes = 64;
  static constexpr int kAccumulators = 24;
  using Floats = VectorOf<float, 64>::Type;
  using Doubles = VectorOf<double, 64>::Type;
  using Words = VectorOf<uint64_t, 64>::Type;

  [[gnu::always_inline]] static inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  [[gnu::always_inline]] static inline Doubles multiply_add(Doubles a, Doubles b, Doubles c) {
    return _mm512_fmadd_pd(a, b, c);
  }
  [[gnu::always_inline]] static inline Words multiply_low_halves(Words a, Words b) {
    return (Words)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b);
  }
  [[gnu::always_inline]] static inline Floats load_half(const uint16_t* x) {
    return _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  [[gnu::always_inline]] static inline void store_half(uint16_t* y, Floats x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(y), _mm512_maskz_cvtps_ph(0xFFFF, x, _MM_FROUND_TO_NEAREST_INT));
  }
};

template void attention_forward_tile<Avx512>(const AttentionForwardTile<float>&);
template void attention_forward_tile<Avx512>(const AttentionForwardTile<double>&);
template void attention_backward_tile<Avx512>(const AttentionBackwardTile<float>&);
template void attention_backward_tile<Avx512>(const AttentionBackwardTile<double>&);
template void attention_store_sums<Avx512>(const float*, int64_t, int64_t, float, const TileTarget&);
template void attention_store_sums<Avx512>(const double*, int64_t, int64_t, double, const TileTarget&);
template void matmul_tile<Avx512, float>(const MatmulTile&);
template void matmul_tile<Avx512, double>(const MatmulTile&);

}  // namespace megatron::kernels
