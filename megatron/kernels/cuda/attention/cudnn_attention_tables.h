// Additional inputs of cuDNN where it gets rows from tables: these, made from the spans, and the log-sum-exp in its
// order.
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/attention.h"
#include "megatron/kernels/cuda/attention/cudnn_attention_plan.h"

namespace megatron::kernels {

/// The positions of the tables in the workspace.
struct CudnnTablePlaces {
  CudnnTablePlaces(const CudnnTables& tables, void* workspace);
  int64_t* offsets[kCudnnOffsetTables];  // of the first element of each sequence, in elements, and one more
  int32_t *query_lengths, *key_lengths;
  float* statistics;
};

/// Elements between rows and between columns of a tensor that has a table of offsets, and whether its rows are keys.
struct CudnnTableStrides {
  int64_t row = 0, column = 0;
  bool is_of_keys = false;
};

/// Sequences beyond the spans are empty and begin where the last span ends.
void write_cudnn_tables(const CudaStream& stream, const SequenceLayoutView& layout, const CudnnTablePlaces& places,
                        const CudnnTableStrides (&strides)[kCudnnOffsetTables]);

/// The seed and the offset of a dropout mask that depends on options.dropout_key, the first head, the first row of the
/// layout and the step, at `place`, in device memory.
void write_cudnn_seed(const CudaStream& stream, const AttentionOptions& options, const SequenceLayoutView& layout,
                      int64_t* place);

/// Copies between lse [n, b, s] of any strides and cuDNN's [s, b, n].
void statistics_to_cudnn(const CudaStream& stream, const ConstView& lse, float* statistics);
void statistics_from_cudnn(const CudaStream& stream, const float* statistics, const View& lse);

/// Zeros rows of x [s, b, n, d] outside of all spans' queries; their statistics, if defined, become -infinity.
void clear_rows_outside_spans(const CudaStream& stream, const SequenceLayoutView& layout, const View& x,
                              const View& lse);

/// Zeros rows of x [s_k, b, g, d] outside of all spans' keys.
void clear_rows_outside_keys(const CudaStream& stream, const SequenceLayoutView& layout, const View& x);

}  // namespace megatron::kernels
