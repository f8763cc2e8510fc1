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

}  // namespace

Tensor exchange_rows(Context& ctx, const Tensor& x, const ProcessGroup& group, RowExchange exchange) {
  if (group.size() == 1) return x;
  Pending pending = start(ctx, group, x, exchange);
  pending.work.wait();
  Tensor y = std::move(pending.tensor);
  record(ctx, {}, {x.slot}, {&y}, [&] { return std::make_unique<ExchangeRowsNode>(group, exchange); });
  return y;
}

}  // namespace megatron
