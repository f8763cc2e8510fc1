// Memory of a training step on the most loaded rank, estimated from the sizes; Megatron's report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/transformer/transformer_config.h"

namespace megatron {

struct PretrainConfig;

/// The sizes from which memory is estimated. Defaults: one rank.
struct MemorySizes {
  TransformerConfig model;  ///< of kinds of layers that can be built, else the functions below throw NotSupported
  int64_t seq_length = 0;   ///< tokens of a sequence that a context-parallel rank holds
  int64_t micro_batch_size = 0;
  bool sequence_parallel = false;
  bool use_distributed_optimizer = false;
  int64_t tensor_size = 1;
  int64_t pipeline_size = 1;
  std::optional<int64_t> virtual_pipeline_size;
  int64_t data_size = 1;                      ///< ranks of data and context parallelism together
  int64_t expert_size = 1;                    ///< ranks with different experts
  std::optional<int64_t> expert_tensor_size;  ///< ranks with parts of an expert; none: tensor_size
};

/// The sizes of a run whose vocabulary size is known.
MemorySizes memory_sizes_of(const PretrainConfig& config);

/// Biases of linears, learned positions and norms of queries and keys are not counted, as in Megatron.
struct TheoreticalParameters {
  double transformer_block = 0;  ///< all layers, and the final norm
  double routed_experts = 0;     ///< of these, the matrices of routed experts
  double embedding_layers = 0;   ///< word embeddings, and output weights that are not tied to them
  double most_loaded_shard = 0;  ///< of a rank of the first stage
  double other_shards = 0;       ///< of a rank of another stage
  double experts_of_shard = 0;   ///< of both, the matrices of routed experts
  double total() const { return transformer_block + embedding_layers; }
};
TheoreticalParameters theoretical_parameters(const MemorySizes& sizes);

/// Bytes that a parameter takes on the device. Defaults: Megatron's for mixed precision, bf16 weight and fp32 gradient,
/// then fp32 main parameter and Adam's two moments.
struct ParameterBytes {
  int64_t weight_and_gradient = 6;
  int64_t optimizer = 12;   ///< the distributed optimizer splits them over the data-parallel ranks
  double part_on_host = 0;  ///< of those of the optimizer, which the device does not hold
};
/// Those of a run, by its dtypes and its optimizer.
ParameterBytes parameter_bytes_of(const PretrainConfig& config);

/// Bytes of weights, gradients and the optimizer's state on the most loaded rank.
double theoretical_weight_and_optimizer_bytes(const MemorySizes& sizes, const ParameterBytes& bytes = {});

/// Bytes of a layer's activations for a micro-batch, two bytes a value: Table 2 of arXiv:2205.05198 with sequence
/// parallelism and selective recompute, otherwise its tensor-parallel row without the attention square. A layer without
/// attention or without feed-forward has its share of them.
double theoretical_layer_activation_bytes(const MemorySizes& sizes, const LayerKind& kind);

/// Bytes of activations on a rank of the first stage, with the micro-batches that the schedule keeps in flight.
/// @param num_microbatches  of a step
double theoretical_activation_bytes(const MemorySizes& sizes, int64_t num_microbatches);

/// A sentence on what a rank of a run needs in all, weights and states in the run's own dtypes.
std::string memory_estimate(const PretrainConfig& config);

/// The lines that Megatron prints after the first two log lines (megatron/training/theoretical_memory_usage.py):
/// parameters in billions, memory in units of 2^20 bytes.
std::string theoretical_memory_report(const MemorySizes& sizes, int64_t num_microbatches);

}  // namespace megatron
