// The part of an optimizer's step that the host's cores do, on state in host memory.
// Megatron Core: core/optimizer/cpu_offloading/hybrid_optimizer.py.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "megatron/core/context.h"
#include "megatron/core/copy_queue.h"
#include "megatron/kernels/optimizer_ranges.h"
#include "megatron/optimizer/optimizer_config.h"
#include "megatron/optimizer/optimizer_state.h"

namespace megatron {

/// The states that the host steps: group after group, in order, until they have at least `fraction` of all elements.
/// @return for each state whether it is one of them
std::vector<bool> states_on_host(const std::vector<OptimizerState>& states, const std::vector<ParamGroup>& groups,
                                 double fraction);

/// Steps ranges piece by piece: gradients, and weights where they are stepped themselves, come down to a place of
/// staging memory in the host; all of the rank's threads step the piece there; weights go up again. With overlap
/// several places are in use, so that copies in both directions run beside the arithmetic. The arithmetic is that of
/// the CPU's kernels, on any device.
class HostStep {
 public:
  /// One step formula with the settings of `config`. Refers to the device of `ctx`.
  HostStep(const Context& ctx, const OptimizerConfig& config) : device_(ctx.device), config_(config) {}

  /// Adds a state whose is_on_host is set. @param group  whose learning rate it has
  void add(const Context& ctx, OptimizerState& state, const ParamGroupSchedule& schedule, size_t group);
  /// Takes the staging memory; nothing is added after it.
  void prepare(const Context& ctx);

  /// When gradients are complete: starts the first copies.
  void begin();
  /// Reads what kernels have written of the step; a host sync. None if no range is the host's.
  std::optional<StepState> read_state(const Context& ctx) const;
  /// Steps all ranges, or none if gradients are not finite. Kernels launched later see the new weights.
  /// @param state  from read_state(). @param learning_rates  of the groups
  void finish(const Context& ctx, const StepState& state, std::span<const double> learning_rates);

  bool is_empty() const { return pieces_.empty(); }

 private:
  struct Piece {
    const std::byte* gradient;  // on the device
    std::byte* weight;
    int64_t gradient_bytes, weight_bytes;
    bool reads_weight;  // else the weight only gets the result
    size_t group;
    kernels::OptimizerRange range;  // without gradient, weight and learning rate
    kernels::RangeDTypes dtypes;
  };
  struct Place {  // in staging memory
    std::byte *gradient = nullptr, *weight = nullptr;
    CopyQueue::Mark arrived = 0, sent = 0;
  };
  Place& place_of(size_t piece) { return places_[piece % places_.size()]; }
  void fetch(size_t piece);
  void step(const Context& ctx, const StepState& state, const Piece& piece, const Place& place, double learning_rate);

  Device& device_;
  OptimizerConfig config_;
  std::vector<Piece> pieces_;
  std::vector<Place> places_;
  Tensor staging_;
};

}  // namespace megatron
