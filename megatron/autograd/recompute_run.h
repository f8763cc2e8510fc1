// One of the two runs of a function that recompute() runs twice.
#pragma once

#include <functional>
#include <vector>

#include "megatron/autograd/saved_tensor.h"
#include "megatron/core/context.h"

namespace megatron {

class Parameter;

/// Context::run points to the run of the innermost recomputed function. The first run counts the uses of parameters and
/// keeps the values of compute_once(); the second run gets them back, in the same order.
struct RecomputeRun {
  RecomputeRun* outer = nullptr;  // first run: of the function that calls recompute()
  bool is_second = false;
  bool keeps_values = false;      // first run: a second one will follow
  std::vector<Parameter*> uses;   // for the case that no gradient comes and there is no second run
  std::vector<SavedTensor> kept;  // in the order of the calls
  size_t next = 0;                // second run: the value that is given back next

  /// @throw InternalError if a second run has not asked for all that its first run kept.
  void require_all_taken() const;
};

/// A value that both runs of a recomputed function must share: a decision that a second run might take differently (the
/// experts of a token), or a result that is too expensive to compute twice. The first run calls `compute` and keeps its
/// value until backward; the second run gets that value and does not call `compute`. Outside of recompute() this is
/// compute(). No gradient flows through the value, so `compute` launches kernels and calls no op with parameters.
///
/// Other effects that must happen once, such as counters, belong behind `if (ctx.is_first_run())`.
/// @throw InternalError if the value is recorded on a tape, if the second run asks for more values than the first one,
/// or in the function of recompute_when_saved(), whose first run keeps nothing.
Tensor compute_once(const Context& ctx, const std::function<Tensor()>& compute);

}  // namespace megatron
