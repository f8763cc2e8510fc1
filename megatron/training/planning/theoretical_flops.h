// Floating-point operations of a training step, counted from the sizes.
#pragma once

#include <cstdint>

#include "megatron/pipeline_parallel/pipeline_layout.h"

namespace megatron {

struct TransformerConfig;

/// Forward and backward (3 times forward) matrix products at 2 operations per multiply-add, with the causal half of the
/// attention square, without recompute, with the padded vocabulary's logits; Megatron's throughput number.
/// Counts as there: quick-GeGLU has two matrices instead of three, and a sliding window is full attention. Every
/// kind of layer of the plan counts as it is, and layers of multi-token prediction as the last layer of the decoder.
/// @param config             its sizes alone are read, so that it need not be one of a model that can be built
/// @param num_tokens         tokens of the batch
/// @param sum_squared_lengths  sum over its sequences (documents, when packed) of the squared length
double theoretical_flops(const TransformerConfig& config, double num_tokens, double sum_squared_lengths);

/// A batch of `batch_size` sequences of `seq_length` tokens.
double theoretical_flops(const TransformerConfig& config, int64_t batch_size, int64_t seq_length);

/// The input of balanced_layout: operations of the head in units of an average layer, for sequences of
/// `seq_length` tokens. The embedding multiplies nothing. A config without layers or without width costs one layer
/// each.
LayerCosts layer_costs_of(const TransformerConfig& config, int64_t seq_length);

}  // namespace megatron
