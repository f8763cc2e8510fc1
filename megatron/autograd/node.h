// One recorded op: the explicit pair of its backward halves.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/autograd/parameter.h"
#include "megatron/autograd/saved_tensor.h"
#include "megatron/core/context.h"

namespace megatron {

class Tape;

/// kB: gradients of inputs now, those of weights (W) queued. kBW: both now.
enum class Phase { kB, kBW };

/// The state of a backward pass that a node does not keep.
struct BackwardContext {
  Context& ctx;
  Tape& tape;
  Phase phase;
  std::span<const int32_t> inputs;
  /// Says whether input `index` needs a gradient; grad_in of the others stays undefined.
  bool wanted(size_t index) const { return inputs[index] >= 0; }
  /// The gradient of input `index` from other consumers so far: taken off the tape, for a kernel that adds
  /// it to grad_in. Undefined if there is none.
  Tensor take_gathered(size_t index);
};

/// The parameters that a node counts down, and when: B computes the gradient too (norm weights, biases), or W does.
struct Uses {
  std::vector<Parameter*> in_b, in_w;
};

/// An entry of grad_out may be undefined (that output was not used); at least one is defined. Entries of grad_in may
/// share storage with each other and with grad_out. After backward_input a node keeps only what backward_weight reads.
struct Node {
  virtual ~Node() = default;
  virtual void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) = 0;
  virtual void backward_weight(BackwardContext&) {}
  /// Waits for collectives on grad_in that backward_input left in flight. Called before grad_in is used: after W if
  /// W runs at once, so that W hides them.
  virtual void finish_input(BackwardContext&) {}
  Uses uses;
  std::string_view module;  // OpPlace::module of the forward
};

}  // namespace megatron
