#include "megatron/transformer/moe/token_dispatcher.h"

#include <algorithm>
#include <cmath>

#include "megatron/kernels/token_sections.h"
#include "megatron/ops/columns.h"
#include "megatron/tensor_parallel/row_exchange.h"

namespace megatron {
namespace {

/// The columns of a routing that belong to the experts of a rank.
struct Columns {
  int64_t first = 0, count = 0;
};

Tensor columns_of(Context& ctx, const Tensor& x, const Columns& columns) {
  return slice_columns(ctx, x, columns.first, columns.count);
}

Columns own_experts(const ProcessGroup& ep, int64_t num_experts) {
  const int64_t count = num_experts / ep.size();
  return {.first = ep.rank() * count, .count = count};
}

using Meanwhile = std::function<void()>;

/// exchange_rows(), beside which `meanwhile` computes if it is not empty.
Tensor exchange_beside(Context& ctx, const Tensor& x, const ProcessGroup& group, RowExchange exchange,
                       const Meanwhile& meanwhile) {
  if (!meanwhile) return exchange_rows(ctx, x, group, exchange);
  RowsInFlight in_flight = start_exchange(ctx, x, group, exchange);
  meanwhile();
  return finish_exchange(ctx, std::move(in_flight));
}

/// Gathers the tokens of all ranks of the expert grid on each of them. It needs no counts and one collective in each
/// direction; its volume grows with the number of ranks.
class AllGatherDispatcher final : public TokenDispatcher {
 public:
  explicit AllGatherDispatcher(const ProcessGroupCollection& groups) : ep_(groups.ep), tp_ep_(groups.tp_ep) {}

  DispatchedTokens dispatch(Context& ctx, const Tensor& tokens, const Routing& routing, const RowRoom&,
                            const Meanwhile& meanwhile) const override {
    const auto gather = [&](const Tensor& x) { return exchange_rows(ctx, x, tp_ep_, RowExchange::kGather); };
    const Columns own = own_experts(ep_, routing.map.size(1));
    const Routing of_own{.probs = columns_of(ctx, gather(routing.probs), own),
                         .map = columns_of(ctx, gather(routing.map), own)};
    return {.tokens = exchange_beside(ctx, tokens, tp_ep_, RowExchange::kGather, meanwhile),
            .routing = of_own,
            .num_sources = tp_ep_.size(),
            .sections = {}};
  }
  Tensor combine(Context& ctx, const Tensor& output, const DispatchedTokens&) const override {
    return exchange_rows(ctx, output, tp_ep_, RowExchange::kReduceScatter);
  }

 private:
  ProcessGroup ep_, tp_ep_;
};

/// Sends a token once to each rank that has experts for it, in a section of fixed size. The ranks that share the
/// matrices of these experts gather the tokens that each of them has received.
class AllToAllDispatcher final : public TokenDispatcher {
 public:
  AllToAllDispatcher(const ProcessGroupCollection& groups, int64_t topk)
      : ep_(groups.ep), expt_tp_(groups.expt_tp), topk_(topk) {}

  DispatchedTokens dispatch(Context& ctx, const Tensor& tokens, const Routing& routing, const RowRoom& room,
                            const Meanwhile& meanwhile) const override {
    const int64_t t = tokens.size(0), s = section_size(t, room), n = ep_.size();
    const Columns own = own_experts(ep_, routing.map.size(1));
    DispatchedTokens result;
    Permutation& sections = result.sections;
    sections.groups.capacity = n * s;
    sections.tokens = ctx.empty("token_sections.tokens", {n * s}, DType::kInt32);
    sections.slots = ctx.empty("token_sections.slots", {t, n}, DType::kInt32);
    Tensor map = ctx.empty("token_sections.map", {n * s, own.count}, DType::kUInt8);
    launch(ctx, [&](auto& stream) {
      kernels::token_sections(stream, {.map = routing.map.view(),
                                       .tokens = sections.tokens.view(),
                                       .slots = sections.slots.view(),
                                       .section_map = map.view(),
                                       .state = &ctx.step});
    });
    const auto bring = [&](const Tensor& rows, const Meanwhile& beside) {
      const bool is_sent = ep_.size() > 1;
      const Tensor received = exchange_beside(ctx, rows, ep_, RowExchange::kAllToAll, is_sent ? beside : Meanwhile());
      return exchange_beside(ctx, received, expt_tp_, RowExchange::kGather, is_sent ? Meanwhile() : beside);
    };
    // The small tensors go first: collectives of one group take effect in order, and would wait for the tokens.
    result.routing.probs = columns_of(ctx, bring(permute(ctx, routing.probs, sections), {}), own);
    result.routing.map = bring(map, {});
    result.tokens = bring(permute(ctx, tokens, sections), meanwhile);
    result.num_sources = static_cast<int64_t>(n) * expt_tp_.size();
    return result;
  }
  Tensor combine(Context& ctx, const Tensor& output, const DispatchedTokens& dispatched) const override {
    const Tensor whole = exchange_rows(ctx, output, expt_tp_, RowExchange::kReduceScatter);
    return unpermute(ctx, exchange_rows(ctx, whole, ep_, RowExchange::kAllToAll), dispatched.sections);
  }

 private:
  /// The number of rows that are reserved for the tokens that one rank sends to another.
  int64_t section_size(int64_t num_tokens, const RowRoom& room) const {
    if (room.tokens) return std::min(*room.tokens, num_tokens);
    if (!room.factor) return num_tokens;
    const double balanced = static_cast<double>(num_tokens * topk_) / ep_.size();
    return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(balanced * *room.factor)), 1, num_tokens);
  }

  ProcessGroup ep_, expt_tp_;
  int64_t topk_;
};

/// Moves no tokens: every rank has them all.
class ReplicatedTokenDispatcher final : public TokenDispatcher {
 public:
  explicit ReplicatedTokenDispatcher(const ProcessGroupCollection& groups) : ep_(groups.ep), tp_ep_(groups.tp_ep) {}

  DispatchedTokens dispatch(Context& ctx, const Tensor& tokens, const Routing& routing, const RowRoom&,
                            const Meanwhile& meanwhile) const override {
    require(!ctx.is_training(), "[experts] ranks that have the same tokens cannot train: they sum no gradients.");
    if (meanwhile) meanwhile();
    const Columns own = own_experts(ep_, routing.map.size(1));
    return {.tokens = tokens,
            .routing = {.probs = columns_of(ctx, routing.probs, own), .map = columns_of(ctx, routing.map, own)},
            .num_sources = 1,
            .sections = {}};
  }
  Tensor combine(Context&, const Tensor& output, const DispatchedTokens&) const override {
    Tensor sum = output;
    tp_ep_.all_reduce(sum.view(), ReduceOp::kSum, {.site = "experts", .keep_alive = KeepAlive::of(sum.storage())})
        .wait();
    return sum;
  }

 private:
  ProcessGroup ep_, tp_ep_;
};

}  // namespace

std::unique_ptr<TokenDispatcher> make_replicated_token_dispatcher(const ProcessGroupCollection& groups) {
  if (groups.tp_ep.size() == 1) return nullptr;
  return std::make_unique<ReplicatedTokenDispatcher>(groups);
}

std::unique_ptr<TokenDispatcher> make_token_dispatcher(const ProcessGroupCollection& groups, const MoeConfig& config) {
  if (groups.tp_ep.size() == 1) return nullptr;
  if (config.token_dispatcher_type == TokenDispatcherType::kAllGather)
    return std::make_unique<AllGatherDispatcher>(groups);
  return std::make_unique<AllToAllDispatcher>(groups, config.topk.topk);
}

}  // namespace megatron
