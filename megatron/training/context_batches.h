// The tokens of micro-batches that a context-parallel rank holds.
#pragma once

#include <optional>
#include <vector>

#include "megatron/core/context_layouts.h"
#include "megatron/training/micro_batches.h"

namespace megatron {

/// Both chunks of a rank of every tensor, whose rows are positions, and its number of valid tokens. Sequences stay
/// whole: layouts are made of all of them. With one rank the micro-batches are those that were given.
class ContextBatches {
 public:
  /// @param cut  rank and size; the length is that of each tensor. @throw ShapeError for lengths that do not divide.
  ContextBatches(const MicroBatches& whole, const ContextCut& cut);
  ContextBatches(const ContextBatches&) = delete;
  ContextBatches& operator=(const ContextBatches&) = delete;

  const MicroBatches& own() const { return own_; }

 private:
  std::vector<OwnedBatch> cut_;
  MicroBatches own_;
};

}  // namespace megatron
