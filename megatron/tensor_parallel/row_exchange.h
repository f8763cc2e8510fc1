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

}  // namespace megatron
