#include "megatron/kernels/cuda/attention/attention_mma.cuh"
#include "megatron/kernels/cuda/shared_memory.cuh"

namespace megatron::kernels {
namespace {

constexpr int kKeys = 64;
template <class T, int kWidth>
using ForwardShape = MmaShape<T, kWidth, kKeys>;

/// Two buffers of keys and values: one is read while the other is filled.
template <class Z>
struct ForwardMemory {
  typename Z::T q[Z::kOwnElements];
  typename Z::T k[2][Z::kOtherElements], v[2][Z::kOtherElements];
  uint8_t kept[kOwnRows][kKeys / 8];
};

/// The largest logit of a row, in units of ln 2, and this lane's sum of exponentials.
struct RowSoftmax {
  float largest, sum;
};

/// Turns scores into weights for the matmul with the values; rescales sums to the new largest logits.
/// @param largest_seen  raised to the largest of these scores, in units of ln 2
template <class Z>
__device__ void take_softmax(const AttentionInputs& in, const SequenceSpan& span, int64_t query, int64_t key,
                             bool masked, typename Z::Scores& scores, RowSoftmax (&rows)[2], float& largest_seen,
                             typename Z::Sums& sums) {
  const float scale = in.scale * kLog2E;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row_query = query + warp_row() + lane() / 4 + 8 * half;
    float found = -INFINITY;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[j][2 * half + e];
        const bool sees = !masked || in.sees(span, row_query, key + 8 * j + 2 * (lane() % 4) + e);
        score = !sees ? -INFINITY : in.cap > 0 ? kLog2E * in.score(score) : scale * score;
        found = fmaxf(found, score);
      }
    largest_seen = fmaxf(largest_seen, found);
    float most = fmaxf(rows[half].largest, found);
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const float shift = most == -INFINITY ? 0 : most, decay = exp2_of(rows[half].largest - shift);
    float added = 0;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[j][2 * half + e];
        score = exp2_of(score - shift);
        added += score;
      }
    rows[half] = {most, rows[half].sum * decay + added};
#pragma unroll
    for (int c = 0; c < Z::kWidth / 8; ++c) {
      sums[c][2 * half] *= decay;
      sums[c][2 * half + 1] *= decay;
    }
  }
}

template <class Z>
__device__ void drop(const AttentionInputs& in, const uint8_t (&kept)[kOwnRows][kKeys / 8], typename Z::Scores& p) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint8_t* row = kept[warp_row() + lane() / 4 + 8 * half];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      const uint32_t bits = row[j] >> (2 * (lane() % 4));
      p[j][2 * half] = bits & 1 ? p[j][2 * half] * in.kept : 0;
      p[j][2 * half + 1] = bits & 2 ? p[j][2 * half + 1] * in.kept : 0;
    }
  }
}

/// Online softmax over tiles of keys (Dao 2023, arXiv:2307.08691, algorithm 1). Block (tile, head, span).
template <class Z>
__global__ void __launch_bounds__(kMmaThreads) mma_forward_kernel(AttentionInputs in, Heads o, Statistics lse) {
  extern __shared__ float4 memory[];
  auto& shared = *reinterpret_cast<ForwardMemory<Z>*>(memory);
  const SequenceSpan span = in.layout.spans[blockIdx.z];
  // With a causal mask the last tile takes longest, so it begins first.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kOwnRows, head = blockIdx.y;
  if (first >= span.query_length) return;
  const int64_t group = head / in.heads_per_group, position = span.query_offset + first;
  const int64_t num_queries = min(int64_t{kOwnRows}, span.query_length - first);
  const int64_t end = min(int64_t{span.key_length}, position + num_queries + in.right);
  const int64_t begin = position > in.left ? (position - in.left) / kKeys * kKeys : 0;
  const auto fetch = [&](int64_t tile, int buffer) {
    const int64_t num_keys = min(int64_t{kKeys}, span.key_length - tile), row = span.key_begin + tile;
    fetch_tile<Z, kKeys>(in.k, row, num_keys, span.batch, group, shared.k[buffer]);
    fetch_tile<Z, kKeys>(in.v, row, num_keys, span.batch, group, shared.v[buffer]);
  };
  fetch_tile<Z, kOwnRows>(in.q, span.query_begin + first, num_queries, span.batch, head, shared.q);
  if (begin < end) fetch(begin, 0);
  commit_fetches();

  typename Z::Sums sums;
  clear_sums<Z>(sums);
  const float sink = in.sink_logit(head) * kLog2E;
  RowSoftmax rows[2];
  rows[0] = rows[1] = {sink, sink == -INFINITY || lane() % 4 > 0 ? 0.0f : 1.0f};
  const int64_t drawn = in.threshold ? drawn_row<kOwnRows>(in, span, first) : 0;
  int buffer = 0;
  float largest_seen = 0;
  for (int64_t tile = begin; tile < end; tile += kKeys, buffer ^= 1) {
    if (in.threshold) draw_kept<kOwnRows, kKeys>(in, head, drawn, span.first_key + tile, &shared.kept[0][0]);
    if (tile + kKeys < end) fetch(tile + kKeys, buffer ^ 1);
    commit_fetches();
    await_fetches<1>();
    __syncthreads();
    typename Z::Scores scores;
    multiply_rows<Z>(shared.q, shared.k[buffer], in.q.width, scores);
    const bool masked = is_masked(in, span, first, kOwnRows, tile, kKeys);
    take_softmax<Z>(in, span, first, tile, masked, scores, rows, largest_seen, sums);
    if (in.threshold) drop<Z>(in, shared.kept, scores);
    add_weighted_rows<Z>(scores, shared.v[buffer], in.v.width, sums);
    __syncthreads();
  }
  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows[half].sum;
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    factors[half] = sum == 0 ? 0 : 1 / sum;
    const int row = warp_row() + lane() / 4 + 8 * half;
    if (lane() % 4 == 0 && row < num_queries)
      lse.at(head, span.batch, span.query_begin + first + row) = kLn2 * (rows[half].largest + log2f(sum));
  }
  store_rows<Z>(o, span.query_begin + first, num_queries, span.batch, head, sums, factors);
  raise_max_logit(in, head, kLn2 * largest_seen);
}

}  // namespace

void mma_attention_forward(const CudaStream& stream, const AttentionInputs& in, const Heads& o, const Statistics& lse) {
  dispatch_mma(in, [&]<class T, int kWidth>() {
    using Z = ForwardShape<T, kWidth>;
    const dim3 grid(static_cast<unsigned>((in.s + kOwnRows - 1) / kOwnRows), static_cast<unsigned>(in.n),
                    static_cast<unsigned>(in.layout.num_spans));
    constexpr int kBytes = sizeof(ForwardMemory<Z>);
    static_assert(kBytes <= kSmallTileBytes);
    allow_shared_memory("attention_forward", mma_forward_kernel<Z>, kBytes);
    mma_forward_kernel<Z><<<grid, kMmaThreads, kBytes, stream.stream>>>(in, o, lse);
    check_launch("attention_forward");
  });
}

}  // namespace megatron::kernels
