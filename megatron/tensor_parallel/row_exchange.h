// Exchanges of rows between the ranks of a group as ops of their own.
#pragma once

#include "megatron/autograd/tape.h"
#include "megatron/comm/process_group.h"

namespace megatron {

/// The rows of dimension 0 that a rank has after an exchange.
enum class RowExchange {
  kGather,         ///< the rows of all ranks, one rank after the other
  kReduceScatter,  ///< its part of the sum over the ranks
  kAllToAll        ///< one section from each rank: section k of a rank goes to rank k
};

/// Backward is the conjugate exchange: gather and reduce-scatter are each other's, all-to-all is its own.
/// @param x  contiguous; its rows divide by the ranks unless it is gathered. Integer tensors have no gradient.
/// @return x itself with one rank. @throw ShapeError if the rows do not divide
Tensor exchange_rows(Context& ctx, const Tensor& x, const ProcessGroup& group, RowExchange exchange);

struct StartNode;
/// Rows that are on their way between ranks.
struct RowsInFlight {
  Tensor rows;  ///< the result, which must not be read before finish_exchange()
  Work work;
  ProcessGroup group;
  RowExchange exchange = RowExchange::kGather;
  StartNode* start = nullptr;  ///< on the tape, if the exchange has a gradient
  TapeSlot slot;               ///< of the input behind that node, so that its gradient has the input's shape
};
/// exchange_rows() in two halves: what other ops compute between them runs beside it. In backward the conjugate
/// exchange starts with the second half and is waited for by the first, so that it runs beside the backward of these
/// ops. Both halves belong to one tape, and no other exchange of `group` may start between them.
RowsInFlight start_exchange(Context& ctx, const Tensor& x, const ProcessGroup& group, RowExchange exchange);
Tensor finish_exchange(Context& ctx, RowsInFlight in_flight);

}  // namespace megatron
