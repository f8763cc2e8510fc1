// Collectives on tensors, with memory from the arena. On meta the groups are those of a MetaWorld.
#pragma once

#include <string_view>

#include "megatron/comm/process_group.h"
#include "megatron/core/context.h"

namespace megatron {

/// A result that is there once `work` has been waited for.
struct Pending {
  Tensor tensor;
  Work work;
};

/// Reduction over the ranks, in place.
Work start_all_reduce(const ProcessGroup& group, Tensor& x, ReduceOp reduce, std::string_view site);
/// The rows (dimension 0) of all ranks, one after the other.
Pending start_gather(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site);
/// This rank's part of the rows of the sum over the ranks. @throw ShapeError if the rows do not divide.
Pending start_reduce_scatter(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site);
/// The same into memory of the caller, which has a rank's part of the rows.
Work start_reduce_scatter(const ProcessGroup& group, const Tensor& x, Tensor result, std::string_view site);
/// Section k of the rows of every rank goes to rank k; the sections of all ranks come one after the other.
/// @throw ShapeError if the rows do not divide.
Pending start_all_to_all(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site);
/// Returns this rank's share of `num_rows` rows of all ranks. @throw ShapeError if they do not divide.
int64_t rows_of_rank(const ProcessGroup& group, int64_t num_rows);

/// start_gather, waited for.
Tensor gather_rows_of_ranks(const Context& ctx, const ProcessGroup& group, const Tensor& x, std::string_view site);

}  // namespace megatron
