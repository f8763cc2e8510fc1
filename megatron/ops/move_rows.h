// Gathers rows that a router has chosen, and scatters them back.
#pragma once

#include "megatron/autograd/tape.h"

namespace megatron {

/// Row numbers in device memory: the host knows `capacity`, but not the count. A routing decision is
/// kept, never recomputed.
struct IndexList {
  Tensor rows;    // [capacity] int32
  Storage count;  // one int32; the number of valid rows
};

/// y[k] = x[rows[k]].  @param x [t, h].  @return [capacity, h], bounded by the count; a count above the capacity raises
/// StepState::overflow.
Tensor gather_rows(Context& ctx, const Tensor& x, const IndexList& index);
/// y[rows[k]] += x[k], other rows zero.  @param x [capacity, h], bounded.  @return [num_rows, h].
Tensor scatter_rows(Context& ctx, const Tensor& x, const IndexList& index, int64_t num_rows);

}  // namespace megatron
