// Brings tokens to the ranks that have their experts, and the results back. Megatron Core:
// core/transformer/moe/token_dispatcher.py.
#pragma once

#include <functional>
#include <memory>

#include "megatron/comm/process_group_collection.h"
#include "megatron/ops/permute.h"
#include "megatron/ops/router.h"
#include "megatron/transformer/moe/moe_config.h"

namespace megatron {

/// The input of a rank's experts: equally many rows from each source rank, in the order of the sources and within a
/// source in token order. The map marks no row for which the rank has no expert.
struct DispatchedTokens {
  Tensor tokens;            // [n, h]
  Routing routing;          // [n, experts of this rank]
  int64_t num_sources = 1;  // n is a multiple of it
  Permutation sections;     // the rows that this rank has sent; undefined with kAllGather
};

/// How many rows there is room for. None of both: for any routing.
struct RowRoom {
  /// A multiple of the rows of balanced experts; more raise StepState::overflow.
  std::optional<double> factor;
  /// Any routing of so many tokens of each rank; no more of them are routed.
  std::optional<int64_t> tokens;
};

/// Sizes follow from the number of tokens, which is equal on all ranks of a group, and never from the routing: the host
/// reads no counts. A dispatcher has no state between calls, so that micro-batches may interleave.
class TokenDispatcher {
 public:
  virtual ~TokenDispatcher() = default;
  /// @param tokens [t, h] of this rank. @param routing [t, all experts]
  /// @param room  for the tokens that go from one rank to another. All-gather has it for any routing.
  /// @param meanwhile  called once while tokens are on their way, to compute what does not need them; may be empty
  virtual DispatchedTokens dispatch(Context& ctx, const Tensor& tokens, const Routing& routing, const RowRoom& room,
                                    const std::function<void()>& meanwhile) const = 0;
  /// Sums the results of each token's experts. @param output [n, h], the results of this rank's experts for
  /// `dispatched`, or with expert tensor parallelism its part of that sum. @return [t, h]
  virtual Tensor combine(Context& ctx, const Tensor& output, const DispatchedTokens& dispatched) const = 0;
};

/// The dispatcher of a configuration; null if every rank has all experts whole.
std::unique_ptr<TokenDispatcher> make_token_dispatcher(const ProcessGroupCollection& groups, const MoeConfig& config);
/// The dispatcher of ranks that all have the same tokens: each rank computes those of its experts, and the results are
/// summed over the ranks. It has no gradient. Null if every rank has all experts whole.
std::unique_ptr<TokenDispatcher> make_replicated_token_dispatcher(const ProcessGroupCollection& groups);

}  // namespace megatron
