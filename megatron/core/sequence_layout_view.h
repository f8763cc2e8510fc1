// Which rows of a [s, b, ...] tensor form which sequences, and which global row each local row is: the kernels' side of
// SequenceLayout. There is never an s x s mask.
#pragma once

#include <cstdint>

namespace megatron {

/// One sequence of a micro-batch. Queries are rows [query_begin, query_begin + query_length) of column `batch`; keys
/// are rows [key_begin, key_begin + key_length) of the same column of the key tensor. Query row i of the span stands at
/// key index query_offset + i: causal attention lets it see key indices <= query_offset + i. In training query and key
/// ranges are equal and the offset is 0; with a key-value cache the offset is the number of cached keys.
/// Uniform batches have one span a column, padded ones a shorter one (rows outside of all spans give zero), packed ones
/// and documents that are cut at EOD have several.
struct SequenceSpan {
  int32_t batch = 0;
  int32_t query_begin = 0, query_length = 0;
  int32_t key_begin = 0, key_length = 0;
  int32_t query_offset = 0;
  int32_t first_key =
      0;  // number of the first key in its sequence, for dropout: above 0 where earlier keys are elsewhere
};

/// Facts about spans without their table, which lies in device memory: kernels of libraries are chosen
/// by them.
enum class SpanForm {
  kAny,
  kUniform,      // one span a column, in their order: all rows, as queries and as keys
  kPacked,       // the queries of a span are its keys, and no two spans share a row
  kAllVisible,   // under a causal mask every query of a span sees all of its keys; no two spans share a row
  kEndsAligned,  // the last query of a span stands at its last key, with earlier keys before; no two spans share a row
};

/// Global row of each local row, for randomness that does not depend on the layout (architecture D7).
/// Local row r of a [s, b, ...] tensor is (position r / b, column r % b); it is global row
/// (first_sample + r % b) * sequence_length + the row's position in its sample, which is first_position + r / b or what
/// the table `positions` says (context parallelism, ContextCut). With `list`, local row k stands for row list[k] of
/// that numbering (routed rows of an expert).
struct RowMap {
  int64_t first_sample = 0;     // global index of column 0
  int64_t sequence_length = 1;  // of the whole sequence, before any cut
  int64_t first_position = 0;   // of local row 0 (sequence parallel offset)
  int64_t b = 1;                // columns
  const int32_t* list = nullptr;
  const int32_t* positions = nullptr;  // [s, b] of the rows from first_position 0 on; null: rows are consecutive

  int64_t operator()(int64_t r) const {
    if (list) r = list[r];
    const int64_t position = positions ? positions[first_position * b + r] : first_position + r / b;
    return (first_sample + r % b) * sequence_length + position;
  }
};

/// Attention, RoPE and the loss know this of the rows.
struct SequenceLayoutView {
  int64_t s = 0, b = 0;  // local rows and columns of the query tensor
  const SequenceSpan* spans = nullptr;
  int64_t num_spans = 0;
  SpanForm form = SpanForm::kAny;
  const int32_t* positions = nullptr;  // [s, b] position of each row for embeddings; null: row index + first_position
  int64_t first_position = 0;
  RowMap rows;

  int64_t position(int64_t row, int64_t column) const {
    return positions ? positions[row * b + column] : first_position + row;
  }
};

}  // namespace megatron
