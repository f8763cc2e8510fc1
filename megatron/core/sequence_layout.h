// Which rows of a micro-batch form which sequences: what attention, RoPE, dropout and the loss know about rows.
#pragma once

#include <memory>
#include <vector>

#include "megatron/core/context.h"
#include "megatron/core/sequence_layout_view.h"

namespace megatron {

struct ContextLayouts;

/// Owns the spans and positions in device memory; modules pass it on, kernels get `view()`. There is no s x s mask.
class SequenceLayout {
 public:
  struct Options {
    int64_t s = 0, b = 0;         // rows and columns of the hidden states [s, b, h]
    int64_t first_sample = 0;     // global number of column 0 in this step
    int64_t sequence_length = 0;  // of the uncut sequence; 0: s
    int64_t first_position = 0;   // of row 0 (cached generation)
    /// int32 [s, b]: positions of the rows in their samples, for RowMap. Undefined: rows are consecutive.
    Tensor sample_positions = {};
    /// The table of spans has memory for as many, so that what a batch allocates does not depend on its documents.
    /// 0: for those that there are.
    int64_t span_capacity = 0;
  };
  /// One sequence a column, all rows valid. With cached keys `first_position` rows of them precede.
  static SequenceLayout uniform(const Context& ctx, const Options& options);
  /// Any spans; several a column are packed documents. `positions` [s, b] restart where they say; empty: row numbers.
  /// @throw ShapeError for spans outside of the rows, more than the capacity, and negative positions.
  static SequenceLayout from_spans(const Context& ctx, const Options& options, const std::vector<SequenceSpan>& spans,
                                   const std::vector<int32_t>& positions);
  /// Sequences that begin at `cuts[column]` (ascending, without 0): documents cut at EOD (--reset-attention-mask).
  static SequenceLayout cut_at(const Context& ctx, const Options& options,
                               const std::vector<std::vector<int32_t>>& cuts, const std::vector<int32_t>& positions);

  int64_t s() const { return view_.s; }
  int64_t b() const { return view_.b; }
  const RowMap& rows() const { return view_.rows; }
  SequenceLayoutView view() const { return view_; }
  /// One more than the last row of the keys that a span reads, and than the last position of a row: what the tensors of
  /// keys and the tables of positions must have.
  int64_t num_keys() const { return num_keys_; }
  int64_t num_positions() const { return num_positions_; }
  /// Query-key pairs that attention computes where a query sees at most `window_left` keys before its own and
  /// `window_right` after it (negative: all; causal attention: 0 after it); counts operations.
  int64_t num_visible_pairs(int64_t window_left, int64_t window_right) const;

  /// The further layouts that attention reads if context-parallel ranks share the sequences; else null.
  const ContextLayouts* context() const { return context_.get(); }
  void set_context(ContextLayouts layouts);

 private:
  /// Queries of a span, its keys, and how many of them stand before its first query.
  struct Extent {
    int64_t num_queries, num_keys, num_keys_before;
  };

  SequenceLayoutView view_;
  Tensor spans_, positions_, sample_positions_;
  int64_t num_keys_ = 0, num_positions_ = 0;
  std::vector<Extent> extents_;  // of the spans, for the host
  std::shared_ptr<const ContextLayouts> context_;
};

}  // namespace megatron
