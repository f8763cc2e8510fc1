// The feed-forward part of a layer as a mixture of experts. Megatron Core: core/transformer/moe/moe_layer.py.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "megatron/ops/permute.h"
#include "megatron/transformer/moe/grouped_mlp.h"
#include "megatron/transformer/moe/sequential_mlp.h"
#include "megatron/transformer/moe/shared_experts.h"
#include "megatron/transformer/moe/token_dispatcher.h"
#include "megatron/transformer/moe/topk_router.h"

namespace megatron {

struct MoeOutput {
  Tensor output;  // [s, b, h]
  std::vector<AuxiliaryLoss> losses;
  Tensor tokens_per_expert;  // see RouterOutput
};

/// The router, the routed experts and the shared experts. If ranks share the experts, a dispatcher brings each rank the
/// tokens of its experts. With a latent size tokens are projected down to that width before the routed experts and up
/// after them; the router and the shared experts see tokens of full width.
class MoeLayer : public Module {
 public:
  /// @throw ConfigError for tensor parallelism without sequence parallelism, where ranks would route the same tokens,
  ///        unless context.replicates_tokens says that they may.
  MoeLayer(const ModuleContext& context, const MoeConfig& config);
  /// @param x [s, b, h] ([s/tp, b, h] under sequence parallelism).
  MoeOutput forward(Context& ctx, const Tensor& x, const RouterInputs& inputs) const;
  TopKRouter& router() const { return *router_; }
  /// Sets whether a training step is bounded by expert_rank_capacity_factor; at first it is. A step that has raised
  /// StepState::overflow is repeated without the bound: then there is room for any routing, in the experts of one layer
  /// at a time, whose values backward computes again. The results are the same bits as if there always had been room;
  /// with num_exact_rounds above 1, in which parts of the tokens take turns, up to rounding of the weights' gradients.
  /// Evaluation has no bound.
  void set_bounded(bool is_bounded) { is_bounded_ = is_bounded; }

 private:
  /// The bound on the rows of this rank's experts. @param num_tokens of a rank, before they are dispatched
  PermutationOptions permutation_options(int64_t num_tokens, const DispatchedTokens& dispatched,
                                         const RowRoom& room) const;
  void register_experts(const ModuleContext& context);
  Parameter& register_latent(std::unique_ptr<Parameter>& slot, const ModuleContext& context, std::string_view name,
                             const Shape& shape, double init_std);
  /// Computes what does not need the tokens that are on their way between ranks. May be empty.
  using Meanwhile = std::function<void()>;
  /// @param tokens [t, h], or [t, latent size]. @param meanwhile  is called at most once. @return the shape of
  /// `tokens`.
  Tensor routed_output(Context& ctx, const Tensor& tokens, const Routing& routing, const Meanwhile& meanwhile) const;
  Tensor exact_output(Context& ctx, const Tensor& tokens, const Routing& routing) const;
  Tensor dispatched_output(Context& ctx, const Tensor& tokens, const Routing& routing, const RowRoom& room,
                           const Meanwhile& meanwhile) const;
  Tensor shared_output(Context& ctx, const Tensor& x) const;
  Tensor expert_output(Context& ctx, int64_t num_tokens, const DispatchedTokens& dispatched, const RowRoom& room) const;

  MoeConfig config_;
  bool is_bounded_ = true, recomputes_shared_experts_;
  std::unique_ptr<TopKRouter> router_;
  std::unique_ptr<Parameter> fc1_latent_weight_, fc1_latent_bias_, fc2_latent_weight_, fc2_latent_bias_;
  std::unique_ptr<TokenDispatcher> dispatcher_;  // null if this rank has all experts whole
  std::unique_ptr<GroupedMlp> experts_;          // one of both
  std::unique_ptr<SequentialMlp> sequential_experts_;
  std::unique_ptr<SharedExperts> shared_experts_;
};

}  // namespace megatron
