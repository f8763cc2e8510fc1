// Tile kernels for any x86-64: 128-bit vectors, 16 registers.
#include "megatron/kernels/cpu/attention_backward_tile.h"
#include "megatron/kernels/cpu/attention_forward_tile.h"
#include "megatron/kernels/cpu/instruction_set.h"
#include "megatron/kernels/cpu/matmul_block.h"

namespace megatron::kernels {

struct Plain {
  static constexpr int64_t kVectorBytes = 16;
  static constexpr int kAccumulators = 12;
  using Floats = VectorOf<float, 16>::Type;
  using Words = VectorOf<uint64_t, 16>::Type;

  template <class V>
  [[gnu::always_inline]] static inline V multiply_add(V a, V b, V c) {
    return a * b + c;
  }
  [[gnu::always_inline]] static inline Words multiply_low_halves(Words a, Words b) {
    return (a & 0xFFFFFFFFu) * (b & 0xFFFFFFFFu);
  }
  [[gnu::always_inline]] static inline Floats load_half(const uint16_t* x) {
    Floats y{};
    for (int i = 0; i < 4; ++i) y[i] = reinterpret_cast<const Float16*>(x)[i];
    return y;
  }
  [[gnu::always_inline]] static inline void store_half(uint16_t* y, Floats x) {
    for (int i = 0; i < 4; ++i) y[i] = Float16(x[i]).bits;
  }
};

template void attention_forward_tile<Plain>(const AttentionForwardTile<float>&);
template void attention_forward_tile<Plain>(const AttentionForwardTile<double>&);
template void attention_backward_tile<Plain>(const AttentionBackwardTile<float>&);
template void attention_backward_tile<Plain>(const AttentionBackwardTile<double>&);
template void attention_store_sums<Plain>(const float*, int64_t, int64_t, float, const TileTarget&);
template void attention_store_sums<Plain>(const double*, int64_t, int64_t, double, const TileTarget&);
template void matmul_tile<Plain, float>(const MatmulTile&);
template void matmul_tile<Plain, double>(const MatmulTile&);

}  // namespace megatron::kernels
