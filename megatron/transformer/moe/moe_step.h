// The tensors of a training step that mixtures of experts read and accumulate into.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "megatron/autograd/tape.h"
#include "megatron/transformer/moe/moe_layer.h"

namespace megatron {

/// [1] float64 among the tensors of a training step: the gradient of every auxiliary loss.
inline constexpr std::string_view kAttachedLossScale = "attached loss scale";
/// [layers * e] float64: the tokens of each expert, counted with per_layer_logging. Layers that predict further tokens
/// follow those of the decoder, here and in the auxiliary losses.
inline constexpr std::string_view kTokensPerExpert = "tokens per expert";

/// The names of the auxiliary losses of this configuration, in Megatron's order. Each names an accumulator [layers]
/// float64: the sum over micro-batches, without the coefficient.
std::vector<std::string_view> auxiliary_losses(const MoeConfig& config);

/// The tensor of this name; undefined if the step has none.
Tensor step_tensor(std::span<const NamedTensor> step, std::string_view name);
/// Adds the counts of layer `layer_number` (from 1; the decoder's layers, then those for further tokens) in a
/// micro-batch to those accumulators that exist.
void add_to_step(const Context& ctx, std::span<const NamedTensor> step, int64_t layer_number, const MoeOutput& output);

}  // namespace megatron
