// The layouts that must all train alike.
#pragma once

#include <string>
#include <vector>

#include "tests/parallel/layout_run.h"

namespace megatron::testing {

/// A model of which layouts are tried.
struct ModelSizes {
  std::string name;       // "gpt2"
  bool is_llama = false;  // else GPT-2: learned positions, biases, tied embeddings
  int num_layers = 7, global_batch = 12;
  std::string words;
};

/// One layout of at most 8 ranks, with what else may change no number.
struct LayoutCase {
  ModelSizes sizes;
  int tensor = 1, pipeline = 1, chunks = 1, data = 1, context = 1;
  bool sequence_parallel = false, distributed_optimizer = false, overlaps = false, tensor_overlaps = false;
  std::string schedule, recompute, context_type;
  int micro_batch_size = 1;
  std::string precision = "--fp64 ";  // "": fp32

  int num_ranks() const { return tensor * pipeline * data * context; }
  /// That of the model; twice as large where a virtual pipeline would have fewer micro-batches than stages, which
  /// Megatron refuses.
  int global_batch() const;
  /// The command line of the model on one rank, and what the layout adds.
  std::string model() const;
  std::string layout() const;
};

/// The values of which layouts are combined.
struct LayoutFactors {
  std::vector<ModelSizes> models;
  std::vector<int> tensor, pipeline, chunks, data, context;
  std::vector<bool> sequence_parallel, distributed_optimizer, overlaps, tensor_overlaps;
  std::vector<std::string> schedules, recompute, context_types;
  std::vector<int> micro_batch_sizes;
};

/// Tensor {1, 2, 4}, pipeline {1, 2, 4}, chunks {1, 2, 3}, data {1, 2, 3}, each way of everything else, for a model
/// like GPT-2 and one like Llama, of 7 layers. Products in parts (tensor_overlaps) and context parallelism are left to
/// those who ask for them.
LayoutFactors whole_matrix();
/// Context {2, 3, 4} in every way of sharing attention, with all else, on sequences of 24 tokens.
LayoutFactors context_matrix();

/// Every pair of settings of the whole matrix occurs that can occur, with products in parts and without.
std::vector<LayoutCase> pairwise_layouts();
/// The same of context parallelism.
std::vector<LayoutCase> pairwise_context_layouts();
/// All valid combinations.
std::vector<LayoutCase> all_layouts(const LayoutFactors& factors);

/// Trains each layout, and each model on one rank, and expects the same curve.
void expect_one_rank_curves(const std::vector<LayoutCase>& layouts, int num_steps);

}  // namespace megatron::testing
