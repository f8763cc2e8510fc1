// Activation recompute as a node.
#pragma once

#include <functional>

#include "megatron/autograd/tape.h"

namespace megatron {

using PayloadFunction = std::function<Payload(Context&, const Payload&)>;

/// Runs `function`, saves only its inputs, and runs it again in backward on an inner tape (Korthikanti et al. 2022,
/// arXiv:2205.05198, section 5). Nothing is restored: all that `function` reads beside its inputs is the same at both
/// times, randomness included (it is keyed by path and step). Nests. Tensors that `function` captures must not be
/// recorded: their gradient would be lost, so it is an error.
Payload recompute(Context& ctx, const Payload& in, const PayloadFunction& function);

}  // namespace megatron
