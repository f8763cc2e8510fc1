// The rows that a layer's cache has of several sequences, each with its own length.
#pragma once

#include <vector>

#include "megatron/core/context.h"
#include "megatron/transformer/layer_state.h"

namespace megatron {

/// The base of caches [max rows, sequences, ...]. The columns of a forward pass continue sequences of the cache: all of
/// them at first, or those that continue_sequences() names. It is never recorded.
class CachedSequences : public LayerState {
 public:
  explicit CachedSequences(int64_t num_sequences) : num_rows_(static_cast<size_t>(num_sequences)) {}

  /// The columns of the next forward pass are sequences `first`, first + 1, ... The cache has `num_rows[column]` rows
  /// of each; later ones are overwritten.
  void continue_sequences(int64_t first, std::vector<int64_t> num_rows);
  /// Rows of the longest of these sequences.
  int64_t num_rows() const;

 protected:
  /// Writes `rows` [s, b, ...] behind the rows so far. @throw ShapeError beyond the capacity.
  void write_rows(const Context& ctx, const Tensor& rows, const Tensor& cache) const;
  /// Counts s further rows of each sequence.
  void add_rows(int64_t s);
  /// The sequences up to the longest: [num_rows(), b, ...].
  Tensor rows_so_far(const Tensor& cache) const;

 private:
  int64_t first_ = 0;
  std::vector<int64_t> num_rows_;
};

/// Calls continue_sequences() of all states that have one.
/// @throw NotSupported if a layer has a state of another kind, which holds one sequence.
void continue_sequences(const LayerStates& states, int64_t first, const std::vector<int64_t>& num_rows);

}  // namespace megatron
