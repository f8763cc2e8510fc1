#include "megatron/kernels/cuda/attention/attention_tile.cuh"
#include "megatron/kernels/cuda/attention/cudnn_attention_tables.h"

namespace megatron::kernels {
namespace {

struct Tables {
  SequenceLayoutView layout;
  int64_t num_sequences;
  CudnnTablePlaces places;
  CudnnTableStrides strides[kCudnnOffsetTables];
};

/// Thread = sequence, or the end of the last one.
__global__ void tables_kernel(Tables tables) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i > tables.num_sequences) return;
  const bool is_span = i < tables.layout.num_spans;
  const SequenceSpan& span = tables.layout.spans[is_span ? i : tables.layout.num_spans - 1];
  const int64_t query = span.query_begin + (is_span ? 0 : span.query_length);
  const int64_t key = span.key_begin + (is_span ? 0 : span.key_length);
#pragma unroll
  for (int table = 0; table < kCudnnOffsetTables; ++table)
    tables.places.offsets[table][i] = (tables.strides[table].is_of_keys ? key : query) * tables.strides[table].row +
                                      span.batch * tables.strides[table].column;
  if (i == tables.num_sequences) return;
  tables.places.query_lengths[i] = is_span ? span.query_length : 0;
  tables.places.key_lengths[i] = is_span ? span.key_length : 0;
}

__global__ void seed_kernel(RandomKey key, const StepState* state, int64_t* place) {
  place[0] = static_cast<int64_t>(key.at(state->step).value);
  place[1] = 0;
}

/// Thread = element of [s, b, n].
template <bool kToCudnn>
__global__ void statistics_kernel(Statistics lse, float* statistics, int64_t size, int64_t b, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  float& own = lse.at(i % n, i / n % b, i / n / b);
  if (kToCudnn)
    statistics[i] = own;
  else
    own = statistics[i];
}

template <bool kToCudnn>
void move_statistics(const CudaStream& stream, const ConstView& lse, float* statistics) {
  const int64_t size = lse.num_elements(), blocks = (size + kBlockThreads - 1) / kBlockThreads;
  statistics_kernel<kToCudnn><<<static_cast<unsigned>(blocks), kBlockThreads, 0, stream.stream>>>(
      Statistics(lse), statistics, size, lse.shape[1], lse.shape[0]);
  check_launch("attention");
}

}  // namespace

CudnnTablePlaces::CudnnTablePlaces(const CudnnTables& tables, void* workspace) {
  auto* place = static_cast<char*>(workspace);
  for (int64_t*& table : offsets) {
    table = reinterpret_cast<int64_t*>(place);
    place += tables.offset_bytes;
  }
  query_lengths = reinterpret_cast<int32_t*>(place);
  key_lengths = reinterpret_cast<int32_t*>(place + tables.length_bytes);
  statistics = reinterpret_cast<float*>(place + 2 * tables.length_bytes);
}

void write_cudnn_tables(const CudaStream& stream, const SequenceLayoutView& layout, const CudnnTablePlaces& places,
                        const CudnnTableStrides (&strides)[kCudnnOffsetTables]) {
  Tables tables{layout, cudnn_num_sequences(layout), places, {}};
  for (int i = 0; i < kCudnnOffsetTables; ++i) tables.strides[i] = strides[i];
  const int64_t blocks = (tables.num_sequences + kBlockThreads) / kBlockThreads;
  tables_kernel<<<static_cast<unsigned>(blocks), kBlockThreads, 0, stream.stream>>>(tables);
  check_launch("attention");
}

void write_cudnn_seed(const CudaStream& stream, const AttentionOptions& options, const SequenceLayoutView& layout,
                      int64_t* place) {
  const int64_t first_row = layout.rows(0);
  seed_kernel<<<1, 1, 0, stream.stream>>>(options.dropout_key.at(options.first_head).at(first_row), options.state,
                                          place);
  check_launch("attention");
}

void statistics_to_cudnn(const CudaStream& stream, const ConstView& lse, float* statistics) {
  move_statistics<true>(stream, lse, statistics);
}
void statistics_from_cudnn(const CudaStream& stream, const float* statistics, const View& lse) {
  move_statistics<false>(stream, lse, const_cast<float*>(statistics));
}

void clear_rows_outside_spans(const CudaStream& stream, const SequenceLayoutView& layout, const View& x,
                              const View& lse) {
  clear_uncovered_rows(stream, layout, SpanRows::kQueries, x, lse.defined() ? Statistics(lse) : Statistics());
}

void clear_rows_outside_keys(const CudaStream& stream, const SequenceLayoutView& layout, const View& x) {
  clear_uncovered_rows(stream, layout, SpanRows::kKeys, x, {});
}

}  // namespace megatron::kernels
