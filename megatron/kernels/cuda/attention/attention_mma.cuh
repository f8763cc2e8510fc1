// Matmuls of tiles of bf16 or fp16 heads on tensor cores (mma.sync m16n8k16), shared by forward and backward of
// attention. A block has kWarps warps, and each owns 16 rows of the block's tile: queries, or keys in the gradients of
// keys. Of an accumulator of 16 rows, lane l holds rows l / 4 and l / 4 + 8 and, of each 8 columns, 2 (l % 4) and the
// next.
#pragma once

#include "megatron/kernels/cuda/attention/attention_tile.cuh"

namespace megatron::kernels {

inline constexpr int kWarps = 4, kMmaThreads = 32 * kWarps, kOwnRows = 16 * kWarps;
inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

/// Heads of up to kWidth elements of type T, taken kOthers rows at a time.
template <class Element, int kHeadWidth, int kOtherRows>
struct MmaShape {
  using T = Element;
  static constexpr int kWidth = kHeadWidth, kOthers = kOtherRows;
  static constexpr int kPitch = kWidth + 8;  // of rows of a tile: eight adjacent rows share no banks
  static constexpr int kOwnElements = kOwnRows * kPitch, kOtherElements = kOthers * kPitch;
  using Scores = float[kOthers / 8][4];
  using Sums = float[kWidth / 8][4];
};

__device__ inline int lane() { return threadIdx.x % 32; }
/// First of the rows that the warp owns.
__device__ inline int warp_row() { return threadIdx.x / 32 * 16; }

__device__ inline void load_matrices(uint32_t (&fragments)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
               : "r"(address));
}
__device__ inline void load_matrices_transposed(uint32_t (&fragments)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(fragments[0]), "=r"(fragments[1]), "=r"(fragments[2]), "=r"(fragments[3])
               : "r"(address));
}

__device__ inline void multiply(__nv_bfloat16, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline void multiply(__half, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ inline uint32_t pack_two(__nv_bfloat16, float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(two);
}
__device__ inline uint32_t pack_two(__half, float low, float high) {
  const __half2 two = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(two);
}

/// 2^x, to two units in the last place.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Starts to copy rows [first, first + num_rows) of a head; missing rows of the tile's `kRows` are 0.
template <class Z, int kRows>
__device__ void fetch_tile(const Heads& heads, int64_t first, int64_t num_rows, int64_t column, int64_t head,
                           typename Z::T* tile) {
  using T = typename Z::T;
  constexpr int kPacks = Z::kWidth / kPack;
  const T* data = reinterpret_cast<const T*>(heads.x.data) + heads.at(first, column, head);
  for (int i = threadIdx.x; i < kRows * kPacks; i += kMmaThreads) {
    const int row = i / kPacks, begin = i % kPacks * kPack;
    const int n = row < num_rows ? min(heads.width - begin, kPack) : 0;
    T* place = tile + row * Z::kPitch + begin;
    const T* source = data + row * heads.row_stride + begin;
    if (heads.x.is_vectorised && n == kPack) {
      const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(place));
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(source) : "memory");
    } else {
#pragma unroll
      for (int e = 0; e < kPack; ++e) place[e] = e < n ? source[e * heads.x.step] : T(0.0f);
    }
  }
}
__device__ inline void commit_fetches() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits for all but the last `kOpen` groups of copies of this thread.
template <int kOpen>
__device__ void await_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kOpen) : "memory");
}

/// scores[j] = the warp's rows of `own` times rows 8 j .. of `others`, over `width` elements.
template <class Z>
__device__ void multiply_rows(const typename Z::T* own, const typename Z::T* others, int width,
                              typename Z::Scores& scores) {
  const int l = lane();
  const typename Z::T* a_row = own + (warp_row() + l % 16) * Z::kPitch + l / 16 * 8;
  const typename Z::T* b_row = others + (l / 16 * 8 + l % 8) * Z::kPitch + l / 8 % 2 * 8;
#pragma unroll
  for (int j = 0; j < Z::kOthers / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[j][e] = 0;
#pragma unroll
  for (int c = 0; c < Z::kWidth; c += 16) {
    if (c >= width) break;
    uint32_t a[4];
    load_matrices(a, a_row + c);
#pragma unroll
    for (int j = 0; j < Z::kOthers / 16; ++j) {
      uint32_t b[4];
      load_matrices(b, b_row + 16 * j * Z::kPitch + c);
      multiply(typename Z::T(), scores[2 * j], a, b[0], b[1]);
      multiply(typename Z::T(), scores[2 * j + 1], a, b[2], b[3]);
    }
  }
}

/// sums += weights, rounded to T, times the rows of `others`.
template <class Z>
__device__ void add_weighted_rows(const typename Z::Scores& weights, const typename Z::T* others, int width,
                                  typename Z::Sums& sums) {
  using T = typename Z::T;
  const int l = lane();
  const T* b_row = others + l % 16 * Z::kPitch + l / 16 * 8;
#pragma unroll
  for (int j = 0; j < Z::kOthers / 16; ++j) {
    const float(&low)[4] = weights[2 * j], (&high)[4] = weights[2 * j + 1];
    const uint32_t a[4] = {pack_two(T(), low[0], low[1]), pack_two(T(), low[2], low[3]),
                           pack_two(T(), high[0], high[1]), pack_two(T(), high[2], high[3])};
#pragma unroll
    for (int c = 0; c < Z::kWidth / 16; ++c) {
      if (16 * c >= width) break;
      uint32_t b[4];
      load_matrices_transposed(b, b_row + 16 * j * Z::kPitch + 16 * c);
      multiply(T(), sums[2 * c], a, b[0], b[1]);
      multiply(T(), sums[2 * c + 1], a, b[2], b[3]);
    }
  }
}

template <class Z>
__device__ void clear_sums(typename Z::Sums& sums) {
#pragma unroll
  for (int c = 0; c < Z::kWidth / 8; ++c)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[c][e] = 0;
}

/// Writes the warp's rows, each times its factor, to the rows from `first` on of a head.
template <class Z>
__device__ void store_rows(const Heads& heads, int64_t first, int64_t num_rows, int64_t column, int64_t head,
                           const typename Z::Sums& sums, const float (&factors)[2]) {
  using T = typename Z::T;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row() + lane() / 4 + 8 * half;
    if (row >= num_rows) continue;
    T* place = reinterpret_cast<T*>(heads.x.data) + heads.at(first + row, column, head);
#pragma unroll
    for (int c = 0; c < Z::kWidth / 8; ++c) {
      const int at = 8 * c + 2 * (lane() % 4);
      const float low = factors[half] * sums[c][2 * half], high = factors[half] * sums[c][2 * half + 1];
      if (heads.x.is_vectorised && at + 1 < heads.width) {
        *reinterpret_cast<uint32_t*>(place + at) = pack_two(T(), low, high);
      } else {
        if (at < heads.width) place[at * heads.x.step] = T(low);
        if (at + 1 < heads.width) place[(at + 1) * heads.x.step] = T(high);
      }
    }
  }
}

/// Threads that draw for the same query of a tile of `kQueries`.
template <int kQueries>
constexpr int kDrawers = kMmaThreads / kQueries;

/// Global row of the query for which this thread draws; queries beyond the span take its last row.
template <int kQueries>
__device__ int64_t drawn_row(const AttentionInputs& in, const SequenceSpan& span, int64_t first_query) {
  const int64_t query = min(first_query + threadIdx.x / kDrawers<kQueries>, int64_t{span.query_length} - 1);
  return global_row(in.layout.rows, (span.query_begin + query) * in.b + span.batch);
}

/// Bit key % 8 of kept[query][key / 8] says whether dropout keeps a key of a tile for a query. `row` is drawn_row(),
/// `first_key` the number of the tile's first key in its sequence.
template <int kQueries, int kKeys>
__device__ void draw_kept(const AttentionInputs& in, int64_t head, int64_t row, int64_t first_key, uint8_t* kept) {
  constexpr int kBytes = kKeys / 8 / kDrawers<kQueries>;
  const uint64_t key = in.options.dropout_key.at(in.options.first_head + head).value;
  const int64_t step = in.options.state->step;
#pragma unroll 1
  for (int i = threadIdx.x * kBytes; i < (threadIdx.x + 1) * kBytes; ++i) {
    const int64_t first = first_key + i % (kKeys / 8) * 8;
    uint32_t bits = 0;
    if (first % 4 == 0) {
      const Draws low = draw_four(key, step, row, first / 4), high = draw_four(key, step, row, first / 4 + 1);
#pragma unroll
      for (int e = 0; e < 8; ++e) bits |= ((e < 4 ? low.w[e] : high.w[e - 4]) >= in.threshold ? 1u : 0u) << e;
    } else {
      float factors[8];
      dropout_factors(in, key, step, row, first, factors);
#pragma unroll
      for (int e = 0; e < 8; ++e) bits |= (factors[e] != 0 ? 1u : 0u) << e;
    }
    kept[i] = static_cast<uint8_t>(bits);
  }
}

/// Says whether some pair of a query of [query, query + num_queries) and a key of [key, key + num_keys) is not
/// computed.
__device__ inline bool is_masked(const AttentionInputs& in, const SequenceSpan& span, int64_t query,
                                 int64_t num_queries, int64_t key, int64_t num_keys) {
  const int64_t position = span.query_offset + query;
  return query + num_queries > span.query_length || key < 0 || key + num_keys > span.key_length ||
         key + num_keys - 1 > position + in.right || key < position + num_queries - 1 - in.left;
}

/// Says whether these kernels support such heads.
inline bool uses_tensor_cores(const AttentionInputs& in) {
  return in.q.x.dtype != DType::kFloat32 && in.q.width <= 128 && in.v.width <= 128;
}
/// Calls f.operator()<T, width>().
template <class F>
void dispatch_mma(const AttentionInputs& in, F&& f) {
  const auto with_width = [&]<class T>(T) {
    if (in.q.width <= 64 && in.v.width <= 64)
      f.template operator()<T, 64>();
    else
      f.template operator()<T, 128>();
  };
  if (in.q.x.dtype == DType::kBFloat16)
    with_width(__nv_bfloat16());
  else
    with_width(__half());
}

/// For uses_tensor_cores(). Probabilities and the gradients of scores are rounded to the dtype before a matmul.
void mma_attention_forward(const CudaStream& stream, const AttentionInputs& in, const Heads& o, const Statistics& lse);
/// Gradients of q, k and v; dot is given.
void mma_attention_backward(const CudaStream& stream, const AttentionGradients& args, int64_t shared_bytes);

}  // namespace megatron::kernels
