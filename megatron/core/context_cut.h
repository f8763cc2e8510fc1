// Which positions of a sample a context-parallel rank holds.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

/// Positions [begin, end) of a sample.
struct PositionRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool is_empty() const { return begin >= end; }
};

/// The documents of a sample that begin at 0 and at `cuts`. @throw ShapeError unless they ascend up to `length`.
std::vector<PositionRange> documents_of(std::span<const int32_t> cuts, int64_t length);

/// Samples over the ranks: a unit is cut into 2 * size equal chunks, of which rank r holds chunks r and 2 * size - 1 -
/// r, so that under a causal mask every rank has as many visible pairs of tokens. The units of a sample are its
/// documents where all of them divide by 2 * size, as packed documents do that are padded; else the whole sample is
/// one. A rank's rows ascend in their positions. Megatron Core: utils.get_batch_on_this_cp_rank, and for documents
/// get_thd_partitioned_indices.
struct ContextCut {
  int64_t rank = 0, size = 1;
  int64_t length = 0;  // of a whole sample, a multiple of 2 * size

  /// @throw ShapeError if the length does not divide, or there is no such rank.
  void check() const;
  int64_t num_rows() const { return length / size; }
  /// Numbers of the rank's two chunks of each unit, ascending.
  std::array<int64_t, 2> chunks() const { return {rank, 2 * size - 1 - rank}; }
  std::vector<PositionRange> units_of(std::span<const int32_t> cuts) const;
  /// The positions of the rank's rows, ascending.
  std::vector<PositionRange> runs_of(std::span<const PositionRange> units) const;
};

}  // namespace megatron
