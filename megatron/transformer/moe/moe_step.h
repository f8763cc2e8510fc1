// What the mixtures of experts of a model take from a training step and count in it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "megatron/autograd/tape.h"
#include "megatron/transformer/moe/moe_layer.h"

namespace megatron {

/// [1] float64 among the tensors of a training step: the gradient of every auxiliary loss.
inline constexpr std::string_view kAttachedLossScale = "attached loss scale";
/// [layers * e] float64: to be counted with per_layer_logging.
inline constexpr std::string_view kTokensPerExpert = "tokens per expert";

/// The auxiliary losses that layers of this kind have, in Megatron's order. Each is an accumulator [layers] float64 of
/// this name: the sum over micro-batches, without the coefficient.
std::vector<std::string_view> auxiliary_losses(const MoeConfig& config);

/// The tensor of this name; undefined if the step has none.
Tensor step_tensor(std::span<const NamedTensor> step, std::string_view name);
/// Adds what layer `layer_number` (from 1) has counted in a micro-batch to the accumulators that there are.
void add_to_step(const Context& ctx, std::span<const NamedTensor> step, int64_t layer_number, const MoeOutput& output);

}  // namespace megatron
