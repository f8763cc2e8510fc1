// How context-parallel ranks share sequences: the balanced cut, and the layouts that their attention reads.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatron/core/sequence_layout.h"

namespace megatron {

/// The sequences of a batch in 2 * size equal chunks, of which rank r holds chunks r and 2 * size - 1 - r: under a
/// causal mask every rank has as many visible pairs of tokens (Megatron Core: utils.get_batch_on_this_cp_rank).
struct ContextCut {
  int64_t rank = 0, size = 1;
  int64_t length = 0;  // of a whole sequence, a multiple of 2 * size

  /// @throw ShapeError if the length does not divide, or there is no such rank.
  void check() const;
  int64_t chunk_length() const { return length / (2 * size); }
  int64_t num_rows() const { return 2 * chunk_length(); }
  /// Numbers of the rank's two chunks, ascending.
  std::array<int64_t, 2> chunks() const { return {rank, 2 * size - 1 - rank}; }
  /// Their positions; not cut with one rank.
  ContextChunks positions() const;
};

/// Ring attention among the ranks of `cut`, whose keys travel from rank to rank: step i computes with those of rank
/// (rank - i) mod size.
struct RingLayouts {
  int64_t num_head_ranks = 1;  // ranks that share the heads of the ring's rank: see ContextAttention
  ContextCut cut;
  /// Attention calls of each step: queries are the rank's rows, keys those of the other rank. No call where no query
  /// sees a key. With one rank a single call with whole sequences.
  std::vector<std::vector<SequenceLayout>> steps;
};

/// SequenceLayout::context(): layouts of the same sequences for every kind of context-parallel attention.
struct ContextLayouts {
  ContextCut cut;
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
};

struct ContextLayoutOptions {
  ContextCut cut;
  std::vector<int64_t> num_head_ranks;  // of the rings to make; each divides the cut's size
  /// Whether the two chunks of a ring rank's keys are called apart: dropout numbers keys by their place in a sequence.
  bool splits_keys = false;
};

/// The layout of a context-parallel rank's rows, with context(). Its spans are for keys of all ranks in the order of
/// their positions. Attention is causal. @throw ShapeError as SequenceLayout::cut_at and ContextCut::check.
SequenceLayout context_parallel_layout(const Context& ctx, const SequenceTable& table,
                                       const ContextLayoutOptions& options);

}  // namespace megatron
