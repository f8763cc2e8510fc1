// The layouts that must all train alike.
#pragma once

#include <string>
#include <vector>

#include "tests/parallel/covering_set.h"

namespace megatron::testing {

/// One layout of at most 8 ranks, with what else may change no number.
struct LayoutCase {
  bool is_llama = false;  // else GPT-2: learned positions, biases, tied embeddings
  int tensor = 1, pipeline = 1, chunks = 1, data = 1;
  bool sequence_parallel = false, distributed_optimizer = false, overlaps = false;
  std::string schedule, recompute;
  int micro_batch_size = 1;

  int num_ranks() const { return tensor * pipeline * data; }
  /// 7 layers, or 11 where virtual stages need more: never a multiple of the stages.
  int num_layers() const;
  /// The command line of the model on one rank, and what the layout adds.
  std::string model() const;
  std::string layout() const;
};

/// Every pair of settings occurs that can occur.
std::vector<LayoutCase> pairwise_layouts();
/// All valid layouts: some thousands.
std::vector<LayoutCase> all_layouts();

/// Trains each layout, and each model on one rank, and expects the same curve.
void expect_one_rank_curves(const std::vector<LayoutCase>& layouts, int num_steps);

}  // namespace megatron::testing
