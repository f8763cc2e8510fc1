// The tensors of an optimizer's state under the names that checkpoints give them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "megatron/optimizer/optimizer.h"

namespace megatron {

/// A tensor of the optimizer with its name in Megatron's files (optimizer_state of
/// dist_checkpointing/megatron_names.h).
struct OptimizerTensor {
  std::string_view name;
  DType dtype;
  std::function<Tensor()> tensor;               // what is stored
  std::function<void(const Tensor&)> put_back;  // takes it again where tensor() is a copy; else empty
};

/// A tensor that is stored as the rank holds it.
OptimizerTensor stored_as_is(std::string_view name, const Tensor& tensor);

/// The tensors that a run needs to continue: main parameters, where they are not the weights, and moments.
/// @param state  one of the optimizer's states(). The result refers to `optimizer`.
std::vector<OptimizerTensor> optimizer_tensors(const Context& ctx, Optimizer& optimizer, const OptimizerState& state);

}  // namespace megatron
