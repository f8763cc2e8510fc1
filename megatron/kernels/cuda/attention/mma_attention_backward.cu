// Gradients of attention (Dao 2023, arXiv:2307.08691, algorithm 2) in two kernels without atomic additions: one owns
// tiles of queries, the other tiles of keys; both recompute the probabilities from q, k and the log-sum-exp.
#include "megatron/kernels/cuda/attention/attention_mma.cuh"
#include "megatron/kernels/cuda/shared_memory.cuh"

namespace megatron::kernels {
namespace {

/// The rows that a block owns, two buffers for the rows over which it iterates, and the statistics of a tile's queries.
template <class Z>
struct BackwardMemory {
  typename Z::T own_a[Z::kOwnElements], own_b[Z::kOwnElements];  // q and grad_o, or k and v
  typename Z::T a[2][Z::kOtherElements], b[2][Z::kOtherElements];
  float lse[2][Z::kOthers], dot[2][Z::kOthers];
  uint8_t kept[kOwnRows * Z::kOthers / 8];
};

/// Log-sum-exp in units of ln 2, so that the probabilities of a query without a visible key are 0.
__device__ float lse_of(const AttentionGradients& args, int64_t head, int64_t column, int64_t row) {
  const float lse = args.lse.at(head, column, row);
  return lse == -INFINITY ? INFINITY : kLog2E * lse;
}

/// From score = q k and its gradient's part grad_p = grad_o v: probability after dropout, and the gradient of the score
/// before its soft cap, without the factor `scale`.
__device__ void differentiate(const AttentionInputs& in, bool sees, bool is_kept, float lse, float dot, float& score,
                              float& grad_p) {
  const bool is_capped = in.cap > 0;
  const float capped = is_capped ? in.score(score) : 0;
  const float p = sees ? exp2_of((is_capped ? kLog2E * capped : in.scale * kLog2E * score) - lse) : 0;
  const float factor = in.threshold == 0 ? 1 : is_kept ? in.kept : 0;
  score = p * factor;
  grad_p = p * (factor * grad_p - dot);
  if (is_capped) grad_p *= in.slope(capped);
}

/// Block (tile of queries, head, span).
template <class Z>
__global__ void __launch_bounds__(kMmaThreads) mma_grad_q_kernel(AttentionGradients args) {
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<BackwardMemory<Z>*>(memory);
  constexpr int kKeys = Z::kOthers;
  const AttentionInputs& in = args.in;
  const SequenceSpan span = in.layout.spans[blockIdx.z];
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kOwnRows, head = blockIdx.y;
  if (first >= span.query_length) return;
  const int64_t row = span.query_begin + first, group = head / in.heads_per_group;
  const int64_t num_queries = min(int64_t{kOwnRows}, span.query_length - first);
  const int64_t position = span.query_offset + first;
  const int64_t end = min(int64_t{span.key_length}, position + num_queries + in.right);
  const int64_t begin = position > in.left ? (position - in.left) / kKeys * kKeys : 0;
  const auto fetch = [&](int64_t tile, int buffer) {
    const int64_t num_keys = min(int64_t{kKeys}, span.key_length - tile), key_row = span.key_begin + tile;
    fetch_tile<Z, kKeys>(in.k, key_row, num_keys, span.batch, group, shared.a[buffer]);
    fetch_tile<Z, kKeys>(in.v, key_row, num_keys, span.batch, group, shared.b[buffer]);
  };
  fetch_tile<Z, kOwnRows>(in.q, row, num_queries, span.batch, head, shared.own_a);
  fetch_tile<Z, kOwnRows>(args.grad_o, row, num_queries, span.batch, head, shared.own_b);
  if (begin < end) fetch(begin, 0);
  commit_fetches();
  float lse[2], dot[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t own = row + min(int64_t{warp_row() + lane() / 4 + 8 * half}, num_queries - 1);
    lse[half] = lse_of(args, head, span.batch, own);
    dot[half] = args.dot.at(head, span.batch, own);
  }
  typename Z::Sums sums;
  clear_sums<Z>(sums);
  const int64_t drawn = in.threshold ? drawn_row<kOwnRows>(in, span, first) : 0;
  int buffer = 0;
  for (int64_t tile = begin; tile < end; tile += kKeys, buffer ^= 1) {
    if (in.threshold) draw_kept<kOwnRows, kKeys>(in, head, drawn, span.first_key + tile, shared.kept);
    if (tile + kKeys < end) fetch(tile + kKeys, buffer ^ 1);
    commit_fetches();
    await_fetches<1>();
    __syncthreads();
    typename Z::Scores scores, grads;
    multiply_rows<Z>(shared.own_a, shared.a[buffer], in.q.width, scores);
    multiply_rows<Z>(shared.own_b, shared.b[buffer], in.v.width, grads);
    const bool masked = is_masked(in, span, first, kOwnRows, tile, kKeys);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = warp_row() + lane() / 4 + 8 * half;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j) {
        const uint32_t bits = in.threshold ? shared.kept[query * (kKeys / 8) + j] >> (2 * (lane() % 4)) : 0;
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool sees = !masked || in.sees(span, first + query, tile + 8 * j + 2 * (lane() % 4) + e);
          differentiate(in, sees, bits >> e & 1, lse[half], dot[half], scores[j][2 * half + e], grads[j][2 * half + e]);
        }
      }
    }
    add_weighted_rows<Z>(grads, shared.a[buffer], in.q.width, sums);
    __syncthreads();
  }
  const float factors[2] = {in.scale, in.scale};
  store_rows<Z>(args.grad_q, row, num_queries, span.batch, head, sums, factors);
}

/// Queries [begin, end) of a span that may attend to its keys [low, high], `begin` at the border of a tile.
struct QueryRange {
  int64_t begin = 0, end = 0;
};
template <int kQueries>
__device__ QueryRange queries_of_keys(const AttentionInputs& in, const SequenceSpan& span, int64_t first_key) {
  const int64_t low = max(first_key, int64_t{0}), high = min(first_key + kOwnRows, int64_t{span.key_length}) - 1;
  if (low > high) return {};
  return {max(low - in.right - span.query_offset, int64_t{0}) / kQueries * kQueries,
          min(high + in.left - span.query_offset + 1, int64_t{span.query_length})};
}

/// Adds the contributions of the queries of one span and head to the block's tile of keys, which begins at key
/// `first_key` of the span. Scores have keys as rows and queries as columns.
template <class Z>
__device__ void add_queries(const AttentionGradients& args, const SequenceSpan& span, int64_t head, int64_t first_key,
                            BackwardMemory<Z>& shared, typename Z::Sums& grad_k, typename Z::Sums& grad_v) {
  constexpr int kQueries = Z::kOthers;
  const AttentionInputs& in = args.in;
  const QueryRange range = queries_of_keys<kQueries>(in, span, first_key);
  const auto fetch = [&](int64_t tile, int buffer) {
    const int64_t num_queries = min(int64_t{kQueries}, span.query_length - tile), row = span.query_begin + tile;
    fetch_tile<Z, kQueries>(in.q, row, num_queries, span.batch, head, shared.a[buffer]);
    fetch_tile<Z, kQueries>(args.grad_o, row, num_queries, span.batch, head, shared.b[buffer]);
    for (int i = threadIdx.x; i < kQueries; i += kMmaThreads) {
      const int64_t own = row + min(int64_t{i}, num_queries - 1);
      shared.lse[buffer][i] = lse_of(args, head, span.batch, own);
      shared.dot[buffer][i] = args.dot.at(head, span.batch, own);
    }
  };
  if (range.begin < range.end) fetch(range.begin, 0);
  commit_fetches();
  int buffer = 0;
  for (int64_t tile = range.begin; tile < range.end; tile += kQueries, buffer ^= 1) {
    if (in.threshold)
      draw_kept<kQueries, kOwnRows>(in, head, drawn_row<kQueries>(in, span, tile), span.first_key + first_key,
                                    shared.kept);
    if (tile + kQueries < range.end) fetch(tile + kQueries, buffer ^ 1);
    commit_fetches();
    await_fetches<1>();
    __syncthreads();
    typename Z::Scores scores, grads;
    multiply_rows<Z>(shared.own_a, shared.a[buffer], in.q.width, scores);
    multiply_rows<Z>(shared.own_b, shared.b[buffer], in.v.width, grads);
    const bool masked = is_masked(in, span, tile, kQueries, first_key, kOwnRows);
#pragma unroll
    for (int j = 0; j < kQueries / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = 8 * j + 2 * (lane() % 4) + e % 2, key = warp_row() + lane() / 4 + e / 2 * 8;
        const bool sees = !masked || in.sees(span, tile + query, first_key + key);
        const bool is_kept = in.threshold && shared.kept[query * (kOwnRows / 8) + key / 8] >> key % 8 & 1;
        differentiate(in, sees, is_kept, shared.lse[buffer][query], shared.dot[buffer][query], scores[j][e],
                      grads[j][e]);
      }
    add_weighted_rows<Z>(scores, shared.b[buffer], in.v.width, grad_v);
    add_weighted_rows<Z>(grads, shared.a[buffer], in.q.width, grad_k);
    __syncthreads();
  }
}

/// Block (tile of keys, key head, column): all spans of the column in order, and all query heads that use the key head.
template <class Z>
__global__ void __launch_bounds__(kMmaThreads, 2) mma_grad_kv_kernel(AttentionGradients args) {
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<BackwardMemory<Z>*>(memory);
  const AttentionInputs& in = args.in;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kOwnRows, group = blockIdx.y, column = blockIdx.z;
  const int64_t num_keys = min(int64_t{kOwnRows}, in.s_k - first);
  fetch_tile<Z, kOwnRows>(in.k, first, num_keys, column, group, shared.own_a);
  fetch_tile<Z, kOwnRows>(in.v, first, num_keys, column, group, shared.own_b);
  typename Z::Sums grad_k, grad_v;
  clear_sums<Z>(grad_k);
  clear_sums<Z>(grad_v);
  for (int64_t i = 0; i < in.layout.num_spans; ++i) {
    const SequenceSpan span = in.layout.spans[i];
    if (span.batch != column) continue;
    for (int64_t head = group * in.heads_per_group; head < (group + 1) * in.heads_per_group; ++head)
      add_queries<Z>(args, span, head, first - span.key_begin, shared, grad_k, grad_v);
  }
  const float scale[2] = {in.scale, in.scale}, one[2] = {1, 1};
  store_rows<Z>(args.grad_k, first, num_keys, column, group, grad_k, scale);
  store_rows<Z>(args.grad_v, first, num_keys, column, group, grad_v, one);
}

template <class Z, class Kernel>
void launch_mma(const CudaStream& stream, const AttentionGradients& args, Kernel kernel, const dim3& grid) {
  constexpr int kBytes = sizeof(BackwardMemory<Z>);
  static_assert(kBytes <= (Z::kWidth * Z::kOthers > 64 * 64 ? kLargeTileBytes : kSmallTileBytes));
  allow_shared_memory("attention_backward", kernel, kBytes);
  kernel<<<grid, kMmaThreads, kBytes, stream.stream>>>(args);
  check_launch("attention_backward");
}

}  // namespace

void mma_attention_backward(const CudaStream& stream, const AttentionGradients& args, int64_t shared_bytes) {
  const AttentionInputs& in = args.in;
  const auto tiles = [](int64_t rows) { return static_cast<unsigned>((rows + kOwnRows - 1) / kOwnRows); };
  const auto n = static_cast<unsigned>(in.n), g = static_cast<unsigned>(in.n / in.heads_per_group);
  dispatch_mma(in, [&]<class T, int kWidth>() {
    using Large = MmaShape<T, kWidth, 64>;
    using Small = MmaShape<T, kWidth, kWidth == 64 ? 64 : 32>;
    using OfKeys = Small;  // two sums need many registers
    if (in.s > 0 && in.layout.num_spans > 0) {
      const dim3 grid(tiles(in.s), n, static_cast<unsigned>(in.layout.num_spans));
      if (shared_bytes >= kLargeTileBytes)
        launch_mma<Large>(stream, args, mma_grad_q_kernel<Large>, grid);
      else
        launch_mma<Small>(stream, args, mma_grad_q_kernel<Small>, grid);
    }
    if (in.s_k > 0)
      launch_mma<OfKeys>(stream, args, mma_grad_kv_kernel<OfKeys>, dim3(tiles(in.s_k), g, static_cast<unsigned>(in.b)));
  });
}

}  // namespace megatron::kernels
