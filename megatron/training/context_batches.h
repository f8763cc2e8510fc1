// The tokens of micro-batches that a context-parallel rank holds.
#pragma once

#include <vector>

#include "megatron/core/context_layouts.h"
#include "megatron/training/micro_batches.h"

namespace megatron {

/// Which part of which sample a rank's micro-batch is, where that differs between the micro-batches of a step.
struct BatchPlace {
  int64_t rank = 0, size = 1;  // among the ranks that share its sequences
  int64_t sample = 0;          // number in the global batch
  int64_t sample_length = 0, first_position = 0;
  /// For documents of any samples, one after the other: the number of each row among the tokens of the global batch, in
  /// place of the three before.
  std::vector<int32_t> row_numbers = {};
};

/// The rank's rows of every tensor, whose rows are the positions of a sample, and its number of valid tokens. Sequences
/// stay whole: layouts are made of all of them. With one rank the micro-batches are those that were given.
class ContextBatches {
 public:
  /// @param cut  rank and size; the length is that of each tensor. @throw ShapeError for lengths that do not divide.
  ContextBatches(const MicroBatches& whole, const ContextCut& cut);
  /// Micro-batches that have a place each.
  ContextBatches(std::vector<OwnedBatch> own, std::vector<BatchPlace> places);
  ContextBatches(const ContextBatches&) = delete;
  ContextBatches& operator=(const ContextBatches&) = delete;

  const MicroBatches& own() const { return own_; }
  /// One of each micro-batch; empty where the layout of ranks says it for all.
  const std::vector<BatchPlace>& places() const { return places_; }

 private:
  std::vector<OwnedBatch> cut_;
  std::vector<BatchPlace> places_;
  MicroBatches own_;
};

/// The rows of one rank of a micro-batch.
OwnedBatch part_of_rank(const HostBatch& whole, const ContextCut& cut);

}  // namespace megatron
