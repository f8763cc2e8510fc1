// Tiles of queries and keys in shared memory, in fp32, and their matmuls, for forward and backward of attention.
// A block is 16 x 16 threads; thread (x, y) owns R x R elements of a tile of scores, queries y R .. and keys x R
// ..
#pragma once

#include <cuda_runtime.h>

#include "megatron/kernels/attention.h"
#include "megatron/kernels/cuda/attention/tiled_attention.h"
#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/cuda/random.cuh"

namespace megatron::kernels {

inline constexpr int kSide = 16;

/// Tile of kTile queries or keys, heads of up to kWidth elements.
template <int kTileSize, int kHeadWidth>
struct TileShape {
  static constexpr int kTile = kTileSize, kWidth = kHeadWidth;
  static constexpr int kRows = kTile / kSide;    // R
  static constexpr int kColumns = kWidth / 64;   // groups of four columns of a thread
  static constexpr int kPitch = kWidth + 4;      // of rows of heads: no two of eight adjacent rows share banks
  static constexpr int kScorePitch = kTile + 4;  // of rows of scores
  static constexpr int kHeadFloats = kTile * kPitch, kScoreFloats = kTile * kScorePitch;
};

/// Heads of [s, b, n, d].
struct Heads {
  Operand x;
  int64_t row_stride = 0, column_stride = 0, head_stride = 0;
  int width = 0;

  Heads() = default;
  explicit Heads(const ConstView& view)
      : x(view),
        row_stride(view.strides[0]),
        column_stride(view.strides[1]),
        head_stride(view.strides[2]),
        width(static_cast<int>(view.shape[3])) {}
  __device__ int64_t at(int64_t row, int64_t column, int64_t head) const {
    return row * row_stride + column * column_stride + head * head_stride;
  }
};

/// Arguments of an attention kernel.
struct AttentionInputs {
  Heads q, k, v;
  Operand sink;
  SequenceLayoutView layout;
  AttentionOptions options;
  int64_t s, b, n, heads_per_group, s_k, left, right;
  uint32_t threshold;  // of dropout; 0: none
  float scale, kept;
  float cap;                     // soft cap of the scores; 0: none
  double* max_logits = nullptr;  // of each head; null: not wanted

  /// The score of a query and a key from their dot product.
  __device__ float score(float product) const {
    const float scaled = scale * product;
    return cap > 0 ? cap * tanhf(scaled / cap) : scaled;
  }
  /// The derivative of score() by the scaled product.
  __device__ float slope(float score) const {
    const float share = cap > 0 ? score / cap : 0;
    return 1 - share * share;
  }

  __device__ float sink_logit(int64_t head) const {
    if (options.softmax == AttentionSoftmax::kVanilla) return -INFINITY;
    return options.softmax == AttentionSoftmax::kOffByOne ? 0 : load_scalar(sink.data, sink.dtype, head);
  }
  /// Says whether query i of the span attends to its key j.
  __device__ bool sees(const SequenceSpan& span, int64_t i, int64_t j) const {
    const int64_t p = span.query_offset + i;
    return i < span.query_length && j >= 0 && j < span.key_length && j >= p - left && j <= p + right;
  }
};

/// Raises the largest logit of a head to the largest of a warp's threads. Numbers from 0 on are ordered as their bits.
__device__ inline void raise_max_logit(const AttentionInputs& in, int64_t head, float logit) {
  if (!in.max_logits) return;
  for (int offset = 16; offset > 0; offset /= 2) logit = fmaxf(logit, __shfl_xor_sync(~0u, logit, offset));
  if ((threadIdx.y * blockDim.x + threadIdx.x) % 32 == 0 && logit > 0)
    atomicMax(reinterpret_cast<unsigned long long*>(in.max_logits + head),
              static_cast<unsigned long long>(__double_as_longlong(logit)));
}

/// [n, b, s] fp32.
struct Statistics {
  float* data = nullptr;
  int64_t head_stride = 0, column_stride = 0, row_stride = 0;
  Statistics() = default;
  explicit Statistics(const ConstView& view)
      : data(const_cast<float*>(view.as<float>())),
        head_stride(view.strides[0]),
        column_stride(view.strides[1]),
        row_stride(view.strides[2]) {}
  __device__ float& at(int64_t head, int64_t column, int64_t row) const {
    return data[head * head_stride + column * column_stride + row * row_stride];
  }
};

/// Arguments of a kernel of attention's gradients.
struct AttentionGradients {
  AttentionInputs in;
  Heads o, grad_o, grad_q, grad_k, grad_v;
  Statistics lse, dot;  // dot(o, grad_o) of a query: the sum over keys of probability times its gradient
};

__device__ inline int thread_number() { return threadIdx.y * kSide + threadIdx.x; }

/// Position of key r of a tile: the R keys of a thread are 16 rows apart, so that 16 threads read adjacent rows.
template <class Z>
__device__ int key_place(int r) {
  return r % Z::kRows * kSide + r / Z::kRows;
}

/// Rows [first, first + num_rows) of a head; missing rows of the tile are 0.
template <class Z, bool kIsKeys>
__device__ void load_tile(const Heads& heads, int64_t first, int64_t num_rows, int64_t column, int64_t head,
                          float* tile) {
  constexpr int kPacks = Z::kWidth / kPack;
  for (int i = thread_number(); i < Z::kTile * kPacks; i += kSide * kSide) {
    const int row = i / kPacks, begin = i % kPacks * kPack;
    const int n = min(heads.width - begin, kPack);
    const Pack pack = row < num_rows && n > 0 ? load(heads.x, heads.at(first + row, column, head) + begin, n) : Pack{};
    float4* place = reinterpret_cast<float4*>(tile + (kIsKeys ? key_place<Z>(row) : row) * Z::kPitch + begin);
    place[0] = make_float4(pack.v[0], pack.v[1], pack.v[2], pack.v[3]);
    place[1] = make_float4(pack.v[4], pack.v[5], pack.v[6], pack.v[7]);
  }
}

template <class Z>
using Scores = float[Z::kRows][Z::kRows];
/// R rows of four columns at 4 x + 64 c.
template <class Z>
using Sums = float4[Z::kRows][Z::kColumns];

/// scores[i][j] = row y R + i of `rows` times key x R + j of `keys`.
template <class Z>
__device__ void multiply_heads(const float* rows, const float* keys, int width, Scores<Z>& scores) {
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i)
#pragma unroll
    for (int j = 0; j < Z::kRows; ++j) scores[i][j] = 0;
#pragma unroll 2
  for (int c = 0; c < width; c += 4) {
    float4 a[Z::kRows], b[Z::kRows];
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i) {
      a[i] = *reinterpret_cast<const float4*>(rows + (threadIdx.y * Z::kRows + i) * Z::kPitch + c);
      b[i] = *reinterpret_cast<const float4*>(keys + (i * kSide + threadIdx.x) * Z::kPitch + c);
    }
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i)
#pragma unroll
      for (int j = 0; j < Z::kRows; ++j)
        scores[i][j] += a[i].x * b[j].x + a[i].y * b[j].y + a[i].z * b[j].z + a[i].w * b[j].w;
  }
}

__device__ inline void add_scaled(float4& sum, float factor, const float4& x) {
  sum.x += factor * x.x;
  sum.y += factor * x.y;
  sum.z += factor * x.z;
  sum.w += factor * x.w;
}

/// sums[i] += sum over r of weights[y R + i][r] (or weights[r][y R + i]) times row r of `heads`.
template <class Z, bool kTransposed, bool kOfKeys>
__device__ void add_products(const float* weights, const float* heads, Sums<Z>& sums) {
#pragma unroll 4
  for (int r = 0; r < Z::kTile; ++r) {
    const float* row = heads + (kOfKeys ? key_place<Z>(r) : r) * Z::kPitch + 4 * threadIdx.x;
    float factor[Z::kRows];
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i) {
      const int own = threadIdx.y * Z::kRows + i;
      factor[i] = kTransposed ? weights[r * Z::kScorePitch + own] : weights[own * Z::kScorePitch + r];
    }
#pragma unroll
    for (int c = 0; c < Z::kColumns; ++c) {
      const float4 x = *reinterpret_cast<const float4*>(row + 64 * c);
#pragma unroll
      for (int i = 0; i < Z::kRows; ++i) add_scaled(sums[i][c], factor[i], x);
    }
  }
}

template <class Z>
__device__ void store_scores(const Scores<Z>& scores, float* tile) {
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i)
#pragma unroll
    for (int j = 0; j < Z::kRows; ++j)
      tile[(threadIdx.y * Z::kRows + i) * Z::kScorePitch + threadIdx.x * Z::kRows + j] = scores[i][j];
}

template <class Z>
__device__ void clear(Sums<Z>& sums) {
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i)
#pragma unroll
    for (int c = 0; c < Z::kColumns; ++c) sums[i][c] = make_float4(0, 0, 0, 0);
}

/// Writes row y R + i of the sums, times factor[i], to row first + y R + i of a head.
template <class Z>
__device__ void store_sums(const Heads& heads, int64_t first, int64_t num_rows, int64_t column, int64_t head,
                           const Sums<Z>& sums, const float* factor) {
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i) {
    const int row = threadIdx.y * Z::kRows + i;
    if (row >= num_rows) continue;
    const int64_t place = heads.at(first + row, column, head);
#pragma unroll
    for (int c = 0; c < Z::kColumns; ++c) {
      const float values[] = {sums[i][c].x, sums[i][c].y, sums[i][c].z, sums[i][c].w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = 4 * threadIdx.x + 64 * c + e;
        if (at < heads.width) store_scalar(heads.x.data, heads.x.dtype, place + at, factor[i] * values[e]);
      }
    }
  }
}

/// factors[j] of keys first_key + j of the sequence for one query: 0 where dropped, else 1 / (1 - rate).
template <int kKeys>
__device__ void dropout_factors(const AttentionInputs& in, uint64_t key, int64_t step, int64_t row, int64_t first_key,
                                float (&factors)[kKeys]) {
  Draws draws;
#pragma unroll
  for (int j = 0; j < kKeys; ++j) {
    const int64_t at = first_key + j;
    if (j == 0 || at % 4 == 0) draws = draw_four(key, step, row, at / 4);
    const int word = static_cast<int>(at & 3);
    const uint32_t draw = word == 0 ? draws.w[0] : word == 1 ? draws.w[1] : word == 2 ? draws.w[2] : draws.w[3];
    factors[j] = draw < in.threshold ? 0 : in.kept;
  }
}

/// The common arguments.
AttentionInputs attention_inputs(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& sink,
                                 const SequenceLayoutView& layout, const AttentionOptions& options);

/// Which rows of a span are meant.
enum class SpanRows { kQueries, kKeys };

/// Writes zeros to rows of `x` outside of those of all spans; their statistics, if given, become -infinity.
void clear_uncovered_rows(const CudaStream& stream, const SequenceLayoutView& layout, SpanRows rows, const View& x,
                          const Statistics& lse);

/// Calls f.operator()<Z>() with the tile for heads of `width` elements on a GPU whose blocks have `shared_bytes`.
template <class F>
void dispatch_tile(int64_t width, int64_t shared_bytes, F&& f) {
  const bool is_large = shared_bytes >= kLargeTileBytes;
  if (width <= 64) return f.template operator()<TileShape<64, 64>>();
  if (width <= 128)
    return is_large ? f.template operator()<TileShape<64, 128>>() : f.template operator()<TileShape<32, 128>>();
  require<NotSupported>(width <= 256, "[attention] heads of {} elements on CUDA: at most 256.", width);
  return is_large ? f.template operator()<TileShape<32, 256>>() : f.template operator()<TileShape<16, 256>>();
}

/// Says whether a kernel that needs `bytes` of shared memory for tile shape Z starts on every GPU that uses this shape.
template <class Z>
constexpr bool fits_shared_memory(int64_t bytes) {
  const bool is_of_large_blocks = Z::kTile * Z::kWidth > 64 * 64;  // of dispatch_tile()
  return bytes <= (is_of_large_blocks ? kLargeTileBytes : kSmallTileBytes);
}

}  // namespace megatron::kernels
