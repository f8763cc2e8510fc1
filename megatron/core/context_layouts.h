// How context-parallel ranks share sequences: the layouts that their attention reads.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/core/context_cut.h"
#include "megatron/core/sequence_layout.h"

namespace megatron {

/// The rows of neighbouring ranks, which come one rank after the other, in the order of their positions: those of one
/// rank of a coarser cut, and of all ranks whole samples. Row i of the ordered tensor [s, b, ...] is row
/// to_positions[i] of the gathered one, whose row i is row to_ranks[i] of the ordered one. Both are int32 [s * b].
struct RowOrder {
  int64_t num_ranks = 1;
  Tensor to_positions, to_ranks;
};

/// Ring attention among the ranks of `cut`, whose keys travel from rank to rank: step i computes with those of rank
/// (rank - i) mod size.
struct RingLayouts {
  RowOrder head_ranks;  // that share the heads of the ring's rank: see ContextAttention
  ContextCut cut;
  /// Attention calls of each step: queries are the rank's rows, keys those of the other rank. No call where no query
  /// sees a key. With one rank a single call with whole sequences.
  std::vector<std::vector<SequenceLayout>> steps;
};

/// SequenceLayout::context(): layouts of the same sequences for every kind of context-parallel attention.
struct ContextLayouts {
  ContextCut cut;
  RowOrder all_ranks;  // with gathers_keys
  /// With gathers_keys: two calls of attention over the keys of all ranks, for the first and the second chunk of each
  /// document that the rank holds. Together they are the layout itself, whose spans share keys.
  std::vector<SequenceLayout> all_keys;
  std::vector<RingLayouts> rings;

  /// @throw InternalError if there is none for that many ranks with shared heads.
  const RingLayouts& ring(int64_t num_head_ranks) const;
};

/// The sequences of a batch in host memory.
struct SequenceTable {
  int64_t b = 0;
  int64_t first_sample = 0;                // global number of column 0 in this step
  std::vector<std::vector<int32_t>> cuts;  // [b], see SequenceLayout::cut_at
  std::vector<int32_t> positions;          // [length, b]; empty: row numbers
  /// If the rows are a part of longer samples: the length of these, and the position of row 0. 0: of the rows.
  int64_t sample_length = 0, first_position = 0;
};

struct ContextLayoutOptions {
  ContextCut cut;
  bool gathers_keys = false;            // attention of all_gather reads the layout too
  std::vector<int64_t> num_head_ranks;  // of the rings to make; each divides the cut's size
  /// Says whether the two chunks of a ring rank's keys are called apart: dropout numbers keys by their place in a
  /// sequence.
  bool splits_keys = false;
  /// Documents of a sample for which there is room in device memory, whatever their number: see
  /// SequenceLayout::Options::span_capacity. 0: for those that there are.
  int64_t max_documents = 0;
};

/// The layout of a context-parallel rank's rows, with context(). Its spans are for keys of all ranks in the order of
/// their positions. Attention is causal. @throw ShapeError as SequenceLayout::cut_at and ContextCut::check.
SequenceLayout context_parallel_layout(const Context& ctx, const SequenceTable& table,
                                       const ContextLayoutOptions& options);

}  // namespace megatron
