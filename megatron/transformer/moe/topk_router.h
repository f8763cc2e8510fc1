// Chooses the experts of each token. Megatron Core: core/transformer/moe/router.py.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/autograd/module.h"
#include "megatron/core/sequence_layout_view.h"
#include "megatron/ops/router.h"
#include "megatron/ops/router_logits.h"
#include "megatron/transformer/module_context.h"
#include "megatron/transformer/moe/moe_config.h"
#include "megatron/transformer/moe/router_replay.h"

namespace megatron {

inline constexpr std::string_view kZLoss = "z_loss";
/// Megatron's name of the loss in the log; empty for what balances without one.
std::string_view auxiliary_loss_of(LoadBalancingType type);

/// One of the losses that a router adds to the training loss, for the log.
struct AuxiliaryLoss {
  std::string_view name;  // Megatron's: "load_balancing_loss", "z_loss", ...
  /// [1] float64, without the coefficient, of the tokens of this rank; the loss is the mean over the ranks of tp_dp_cp.
  Tensor value;
};

struct RouterInputs {
  Tensor loss_scale;  // [1] float64, the gradient of every auxiliary loss; undefined: 1
  RowMap rows;        // of the tokens, for random numbers that do not depend on the layout
};

struct RouterOutput {
  Routing routing;
  std::vector<AuxiliaryLoss> losses;  // empty in evaluation
  Tensor tokens_per_expert;           // [1, e] float32, with per_layer_logging, in the first run of training
};

/// Computes logits, auxiliary losses, top-k, and dropping. The counts of a step lie in device memory: the loads of the
/// experts, which the expert bias and the global loss are computed from. Not thread-safe.
///
/// Each rank routes its own tokens, by weights that are equal on all ranks. Losses count the tokens of all ranks that
/// share a sequence (tp_cp), the global loss and the two biases those of all ranks (tp_dp_cp); capacity and Sinkhorn's
/// balance are of the rank's tokens alone.
class TopKRouter : public Module {
 public:
  TopKRouter(const ModuleContext& context, const MoeConfig& config);

  /// @param x [s, b, h]; tokens are s b, so that each of the b columns is a sequence.
  RouterOutput forward(Context& ctx, const Tensor& x, const RouterInputs& inputs) const;

  /// Records and replays the choice of experts, before tokens are dropped for lack of capacity.
  RouterReplay& replay() { return replay_; }

  /// Begins a step, or repeats one: sets all counts to 0, and replay() to the beginning.
  void begin_step(const Context& ctx);
  /// Ends a step: moves the expert bias by the loads of the step, or beta by its quantiles, and sets these to 0.
  void finish_step(const Context& ctx);

  /// [e] float32, "router.expert_bias" of checkpoints, without a gradient; null without enable_expert_bias.
  Parameter* expert_bias() { return expert_bias_.get(); }
  /// [e] float32, "router.qb_beta" of checkpoints, without a gradient; null without quantile balancing.
  Parameter* quantile_beta() { return quantile_beta_.get(); }
  /// [1, e] float32: the loads of the step so far; undefined without enable_expert_bias.
  const Tensor& tokens_per_expert() const { return tokens_per_expert_; }

 private:
  Tensor jittered(Context& ctx, const Tensor& x, const RowMap& rows) const;
  void clear_counts(const Context& ctx);
  Tensor counts_of(Context& ctx, const Tensor& logits, int64_t b, LoadBalancingType type) const;
  Routing choose(Context& ctx, const Tensor& logits) const;
  /// The values that experts are chosen by instead of the scores; undefined: the scores.
  Tensor selection_of(const Context& ctx, const Tensor& logits) const;
  /// The factor of the loss of `num_tokens` tokens of this rank, a share of a loss of all ranks of `group`. Where
  /// losses are divided by the number of tokens later, it has the tokens of the sequences.
  double loss_weight(int64_t num_tokens, const ProcessGroup& group) const;
  const ProcessGroup& group_of(LoadBalancingType type) const;

  MoeConfig config_;
  std::string path_;
  ProcessGroup tp_cp_, tp_dp_cp_;
  std::unique_ptr<Parameter> weight_, bias_, expert_bias_, quantile_beta_;
  Tensor tokens_per_expert_, global_counts_, quantile_sums_;
  mutable RouterReplay replay_;  // forward() takes and adds routes
};

}  // namespace megatron
