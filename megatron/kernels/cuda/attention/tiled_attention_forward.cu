#include <algorithm>

#include "megatron/kernels/cuda/attention/attention_mma.cuh"
#include "megatron/kernels/cuda/attention/tiled_attention.h"
#include "megatron/kernels/cuda/shared_memory.cuh"

namespace megatron::kernels {
namespace {

/// Larger than any distance between two positions, and far from overflow.
constexpr int64_t kUnlimited = int64_t{1} << 40;

/// Reduces over the 16 threads of the same rows.
template <class Combine>
__device__ float reduce_side(float value, Combine combine) {
  for (int offset = kSide / 2; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

/// Online softmax over tiles of keys (Dao 2023, arXiv:2307.08691, algorithm 1). Block (tile, head, span).
template <class Z>
__global__ void __launch_bounds__(kSide* kSide) attention_forward_kernel(AttentionInputs in, Heads o, Statistics lse) {
  extern __shared__ float4 memory[];
  float* q = reinterpret_cast<float*>(memory);
  float *k = q + Z::kHeadFloats, *v = k + Z::kHeadFloats, *p = v + Z::kHeadFloats;
  const SequenceSpan span = in.layout.spans[blockIdx.z];
  // With a causal mask the last tile takes longest, so it begins first.
  const int64_t first = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * Z::kTile, head = blockIdx.y;
  if (first >= span.query_length) return;
  const int64_t row = span.query_begin + first, group = head / in.heads_per_group;
  const int64_t num_queries = min(int64_t{Z::kTile}, span.query_length - first);
  const int64_t position = span.query_offset + first;
  const int64_t end = min(int64_t{span.key_length}, position + num_queries + in.right);
  const uint64_t key = in.options.dropout_key.at(in.options.first_head + head).value;
  const int64_t step = in.threshold ? in.options.state->step : 0;

  load_tile<Z, false>(in.q, row, num_queries, span.batch, head, q);
  Sums<Z> sums;
  clear<Z>(sums);
  float largest[Z::kRows], sum[Z::kRows], logit = 0;  // the last: the largest that this thread has seen
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i) {
    largest[i] = in.sink_logit(head);
    sum[i] = largest[i] == -INFINITY ? 0 : 1;
  }
  for (int64_t tile = position > in.left ? (position - in.left) / Z::kTile * Z::kTile : 0; tile < end;
       tile += Z::kTile) {
    const int64_t num_keys = min(int64_t{Z::kTile}, span.key_length - tile);
    __syncthreads();
    load_tile<Z, true>(in.k, span.key_begin + tile, num_keys, span.batch, group, k);
    load_tile<Z, false>(in.v, span.key_begin + tile, num_keys, span.batch, group, v);
    __syncthreads();
    Scores<Z> scores;
    multiply_heads<Z>(q, k, in.q.width, scores);
#pragma unroll
    for (int i = 0; i < Z::kRows; ++i) {
      const int64_t query = first + threadIdx.y * Z::kRows + i, first_key = tile + threadIdx.x * Z::kRows;
      float found = -INFINITY;
#pragma unroll
      for (int j = 0; j < Z::kRows; ++j) {
        scores[i][j] = in.sees(span, query, first_key + j) ? in.score(scores[i][j]) : -INFINITY;
        found = fmaxf(found, scores[i][j]);
      }
      logit = fmaxf(logit, found);
      float most = fmaxf(largest[i], found);
      most = reduce_side(most, [](float a, float b) { return fmaxf(a, b); });
      const float shift = most == -INFINITY ? 0 : most, decay = __expf(largest[i] - shift);
      float added = 0;
#pragma unroll
      for (int j = 0; j < Z::kRows; ++j) {
        scores[i][j] = __expf(scores[i][j] - shift);
        added += scores[i][j];
      }
      sum[i] = sum[i] * decay + reduce_side(added, [](float a, float b) { return a + b; });
      largest[i] = most;
#pragma unroll
      for (int c = 0; c < Z::kColumns; ++c) {
        sums[i][c].x *= decay;
        sums[i][c].y *= decay;
        sums[i][c].z *= decay;
        sums[i][c].w *= decay;
      }
      if (in.threshold == 0) continue;
      float factors[Z::kRows];
      const int64_t global = global_row(in.layout.rows, (span.query_begin + query) * in.b + span.batch);
      dropout_factors(in, key, step, global, span.first_key + first_key, factors);
#pragma unroll
      for (int j = 0; j < Z::kRows; ++j) scores[i][j] *= factors[j];
    }
    store_scores<Z>(scores, p);
    __syncthreads();
    add_products<Z, false, false>(p, v, sums);
  }
  float factor[Z::kRows];
#pragma unroll
  for (int i = 0; i < Z::kRows; ++i) {
    factor[i] = sum[i] == 0 ? 0 : 1 / sum[i];
    const int64_t query = threadIdx.y * Z::kRows + i;
    if (threadIdx.x == 0 && query < num_queries) lse.at(head, span.batch, row + query) = largest[i] + logf(sum[i]);
  }
  store_sums<Z>(o, row, num_queries, span.batch, head, sums, factor);
  raise_max_logit(in, head, logit);
}

/// Block = row of [s, b].
__global__ void clear_uncovered_kernel(SequenceLayoutView layout, SpanRows rows, Heads x, int64_t b, int64_t n,
                                       Statistics lse) {
  const int64_t row = blockIdx.x / b, column = blockIdx.x % b;
  bool is_covered = false;
  for (int64_t i = threadIdx.x; i < layout.num_spans; i += blockDim.x) {
    const SequenceSpan& span = layout.spans[i];
    const int64_t begin = rows == SpanRows::kQueries ? span.query_begin : span.key_begin;
    const int64_t length = rows == SpanRows::kQueries ? span.query_length : span.key_length;
    is_covered |= span.batch == column && row >= begin && row < begin + length;
  }
  if (__syncthreads_or(is_covered)) return;
  for (int64_t i = threadIdx.x; i < n * x.width; i += blockDim.x)
    store_scalar(x.x.data, x.x.dtype, x.at(row, column, i / x.width) + i % x.width, 0);
  for (int64_t head = threadIdx.x; lse.data && head < n; head += blockDim.x) lse.at(head, column, row) = -INFINITY;
}

}  // namespace

AttentionInputs attention_inputs(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& sink,
                                 const SequenceLayoutView& layout, const AttentionOptions& options) {
  const auto limit = [](int64_t window) { return window < 0 ? kUnlimited : window; };
  const bool is_learnable = options.softmax == AttentionSoftmax::kLearnable;
  return {.q = Heads(q),
          .k = Heads(k),
          .v = Heads(v),
          .sink = is_learnable ? Operand(sink) : Operand(),
          .layout = layout,
          .options = options,
          .s = q.shape[0],
          .b = q.shape[1],
          .n = q.shape[2],
          .heads_per_group = q.shape[2] / k.shape[2],
          .s_k = k.shape[0],
          .left = limit(options.window_left),
          .right = options.is_causal ? 0 : limit(options.window_right),
          .threshold = options.dropout > 0 ? dropout_threshold(options.dropout) : 0,
          .scale = static_cast<float>(options.scale),
          .kept = static_cast<float>(1 / (1 - options.dropout)),
          .cap = static_cast<float>(options.soft_cap)};
}

void clear_uncovered_rows(const CudaStream& stream, const SequenceLayoutView& layout, SpanRows rows, const View& x,
                          const Statistics& lse) {
  const int64_t s = x.shape[0], b = x.shape[1], n = x.shape[2];
  if (s * b == 0) return;
  clear_uncovered_kernel<<<static_cast<unsigned>(s * b), 128, 0, stream.stream>>>(layout, rows, Heads(x), b, n, lse);
  check_launch("attention");
}

void tiled_attention_forward(const CudaStream& stream, const AttentionForwardArgs& args, int64_t shared_bytes) {
  AttentionInputs in = attention_inputs(args.q, args.k, args.v, args.sink, args.layout, args.options);
  if (args.max_logits.defined()) in.max_logits = args.max_logits.as<double>();
  const Statistics lse(args.lse);
  clear_uncovered_rows(stream, args.layout, SpanRows::kQueries, args.o, lse);
  if (in.s == 0 || in.n == 0 || args.layout.num_spans == 0) return;
  if (uses_tensor_cores(in)) return mma_attention_forward(stream, in, Heads(args.o), lse);
  dispatch_tile(std::max(in.q.width, in.v.width), shared_bytes, [&]<class Z>() {
    const dim3 grid(static_cast<unsigned>((in.s + Z::kTile - 1) / Z::kTile), static_cast<unsigned>(in.n),
                    static_cast<unsigned>(args.layout.num_spans));
    constexpr int kBytes = 4 * (3 * Z::kHeadFloats + Z::kScoreFloats);
    static_assert(fits_shared_memory<Z>(kBytes));
    allow_shared_memory("attention_forward", attention_forward_kernel<Z>, kBytes);
    attention_forward_kernel<Z><<<grid, dim3(kSide, kSide), kBytes, stream.stream>>>(in, Heads(args.o), lse);
    check_launch("attention_forward");
  });
}

}  // namespace megatron::kernels
