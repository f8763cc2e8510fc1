#include "megatron/tensor_parallel/row_exchange.h"

#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

Pending start(const Context& ctx, const ProcessGroup& group, const Tensor& x, RowExchange exchange) {
  switch (exchange) {
    case RowExchange::kGather:
      return start_gather(ctx, group, x, "gather_rows");
    case RowExchange::kReduceScatter:
      return start_reduce_scatter(ctx, group, x, "reduce_scatter_rows");
    case RowExchange::kAllToAll:
      return start_all_to_all(ctx, group, x, "all_to_all_rows");
  }
  throw InternalError("[exchange_rows] unknown exchange");
}

RowExchange conjugate_of(RowExchange exchange) {
  if (exchange == RowExchange::kGather) return RowExchange::kReduceScatter;
  return exchange == RowExchange::kReduceScatter ? RowExchange::kGather : RowExchange::kAllToAll;
}

struct ExchangeRowsNode final : Node {
  ExchangeRowsNode(const ProcessGroup& group, RowExchange exchange) : group(group), exchange(exchange) {}
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    Pending pending = start(b.ctx, group, grad_out[0], conjugate_of(exchange));
    work = std::move(pending.work);
    grad_in[0] = std::move(pending.tensor);
  }
  void finish_input(BackwardContext&) override { work.wait(); }
  ProcessGroup group;
  RowExchange exchange;
  Work work;
};

/// The second half of an exchange. Its backward starts the conjugate exchange, for which that of the first half waits.
struct FinishNode final : Node {
  FinishNode(const ProcessGroup& group, RowExchange exchange, StartNode& start);
  void backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override;
  ProcessGroup group;
  RowExchange exchange;
  StartNode& first;  // recorded before this node, so the tape drops it later
};

}  // namespace

struct StartNode final : Node {
  void backward_input(BackwardContext&, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) override {
    work.wait();
    grad_in[0] = grad_out[0];
  }
  Work work;
};

namespace {

FinishNode::FinishNode(const ProcessGroup& group, RowExchange exchange, StartNode& start)
    : group(group), exchange(exchange), first(start) {}

void FinishNode::backward_input(BackwardContext& b, std::span<const Tensor> grad_out, std::span<Tensor> grad_in) {
  Pending pending = start(b.ctx, group, grad_out[0], conjugate_of(exchange));
  first.work = std::move(pending.work);
  grad_in[0] = std::move(pending.tensor);
}

}  // namespace

RowsInFlight start_exchange(Context& ctx, const Tensor& x, const ProcessGroup& group, RowExchange exchange) {
  RowsInFlight in_flight{.rows = x, .work = {}, .group = group, .exchange = exchange};
  if (group.size() == 1) return in_flight;
  Pending pending = start(ctx, group, x, exchange);
  in_flight.rows = std::move(pending.tensor);
  in_flight.work = std::move(pending.work);
  Tensor input = x;
  record(ctx, {}, {x.slot}, {&input}, [&] {
    auto node = std::make_unique<StartNode>();
    in_flight.start = node.get();
    return node;
  });
  if (in_flight.start) in_flight.slot = input.slot;
  return in_flight;
}

Tensor finish_exchange(Context& ctx, RowsInFlight in_flight) {
  if (in_flight.group.size() == 1) return in_flight.rows;
  in_flight.work.wait();
  Tensor y = std::move(in_flight.rows);
  record(ctx, {}, {in_flight.slot}, {&y},
         [&] { return std::make_unique<FinishNode>(in_flight.group, in_flight.exchange, *in_flight.start); });
  return y;
}

Tensor exchange_rows(Context& ctx, const Tensor& x, const ProcessGroup& group, RowExchange exchange) {
  if (group.size() == 1) return x;
  Pending pending = start(ctx, group, x, exchange);
  pending.work.wait();
  Tensor y = std::move(pending.tensor);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<ExchangeRowsNode>(group, exchange); });
  return y;
}

}  // namespace megatron
