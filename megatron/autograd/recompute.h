// Activation recompute as a node.
#pragma once

#include <functional>

#include "megatron/autograd/tape.h"

namespace megatron {

using PayloadFunction = std::function<Payload(Context&, const Payload&)>;

/// Runs `function`, saves only its inputs, and runs it again in backward on an inner tape (Korthikanti et al. 2022,
/// arXiv:2205.05198, section 5). Nothing is restored: all that `function` reads beside its inputs is the same at both
/// times, randomness included (it is keyed by path and step). What may differ the second time is kept from the first
/// run (compute_once() in recompute_run.h), and effects such as counters happen in the first run alone
/// (Context::is_first_run()). Nests. Tensors that `function` captures must not be recorded: their gradient would be
/// lost, so it is an error.
Payload recompute(Context& ctx, const Payload& in, const PayloadFunction& function);

/// Lets the op that saves `value` for backward save `input` instead, and compute `value` = function(`input`) again
/// where it needs it (Megatron Core: CheckpointWithoutOutput). The memory of `value` is free once its consumers have
/// run. For a cheap function whose output a single op saves; `function` reads its input and parameters alone, and keeps
/// no values (compute_once()).
void recompute_when_saved(Context& ctx, const Tensor& value, const Tensor& input,
                          std::function<Tensor(Context&, const Tensor&)> function);

}  // namespace megatron
