// Code that forward and backward of the CPU attention share outside of the tiles.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "megatron/kernels/attention.h"
#include "megatron/kernels/cpu/attention_tile.h"

namespace megatron::kernels {

/// The rows of one head of [s, b, n, d] in one column, from row `first`.
template <class Rows, class AnyView>
Rows head_rows(const AnyView& x, int64_t first, int64_t column, int64_t head) {
  const int64_t offset = first * x.strides[0] + column * x.strides[1] + head * x.strides[2];
  using Byte = std::conditional_t<std::is_same_v<Rows, TileRows>, const char, char>;
  return {static_cast<Byte*>(x.data) + offset * size_of(x.dtype), x.dtype, x.strides[0]};
}

/// Index into [n, b, s].
inline int64_t statistics_index(const ConstView& lse, int64_t row, int64_t column, int64_t head) {
  return head * lse.strides[0] + column * lse.strides[1] + row * lse.strides[2];
}

/// The common arguments of forward and backward.
struct AttentionInputs {
  const ConstView &q, &k, &v, &sink;
  const SequenceLayoutView& layout;
  const AttentionOptions& options;

  int64_t s() const { return q.shape[0]; }
  int64_t b() const { return q.shape[1]; }
  int64_t n() const { return q.shape[2]; }
  int64_t heads_per_group() const { return q.shape[2] / k.shape[2]; }
  int64_t d() const { return q.shape[3]; }
  int64_t dv() const { return v.shape[3]; }

  /// @throw ShapeError, DtypeError if the operands, or `o` of the result's shape, do not fit together.
  void check(const ConstView& o) const;
  /// Sets all of `tile` except for its scratch memory, for queries [first, first + kQueryTile) of a span as far as they
  /// exist. `rows` has room for kQueryTile numbers.
  template <class C>
  void set_tile(const SequenceSpan& span, int64_t head, int64_t first, int64_t* rows, AttentionTile& tile) const;
  /// Says whether some rows of a column are in no span.
  bool has_uncovered_rows(int64_t column) const;
  /// Query-key pairs of all spans and heads, causal or not.
  int64_t num_pairs() const;
};

/// Fills rows of one head and column with zero bytes.
void zero_rows(const View& x, int64_t column, int64_t head);

/// Threads for `operations` in `num_tasks` tasks: a thread is worth starting for some 10^6 operations (5 us).
inline int attention_team(const CpuStream& stream, int64_t num_tasks, int64_t operations) {
  return static_cast<int>(std::clamp<int64_t>(std::min(num_tasks, operations / 1'000'000), 1, stream.num_threads));
}

/// body(task, thread) for each task; a thread takes another one when it is free. `body` must not throw.
template <class Body>
void for_each_task(int team, int64_t num_tasks, Body&& body) {
  if (team <= 1) {
    for (int64_t task = 0; task < num_tasks; ++task) body(task, 0);
    return;
  }
#pragma omp parallel for num_threads(team) schedule(dynamic, 1)
  for (int64_t task = 0; task < num_tasks; ++task) body(task, omp_get_thread_num());
}

}  // namespace megatron::kernels
