#include "megatron/autograd/recompute_run.h"

namespace megatron {
namespace {

Tensor take_kept(RecomputeRun& run, const Context& ctx) {
  require(run.next < run.kept.size(),
          "[compute_once] the second run of a recomputed function asks for more than the {} values that the first run "
          "kept. Both must call compute_once() equally often.",
          run.kept.size());
  SavedTensor& kept = run.kept[run.next++];
  Tensor value = kept.get(ctx);
  kept.drop();
  return value;
}

/// Functions nest: the outermost run decides whether the value is computed, and each first run keeps a reference to it.
Tensor value_in(RecomputeRun* run, const Context& ctx, const std::function<Tensor()>& compute) {
  if (run && run->is_second) return take_kept(*run, ctx);
  Tensor value;
  if (run && run->outer) {
    value = value_in(run->outer, ctx, compute);
  } else {
    require(ctx.is_first_run(),
            "[compute_once] the function of recompute_when_saved() keeps no values. Use recompute().");
    value = compute();
    require(!value.slot.is_recorded(),
            "[compute_once] the value is recorded on a tape, and its gradient would be lost. Compute it with kernels.");
  }
  if (run && run->keeps_values) run->kept.emplace_back(ctx, value);
  return value;
}

}  // namespace

void RecomputeRun::require_all_taken() const {
  require(next == kept.size(),
          "[compute_once] the first run of a recomputed function kept {} values, and the second run asked for {}. Both "
          "must call compute_once() equally often.",
          kept.size(), next);
}

Tensor compute_once(const Context& ctx, const std::function<Tensor()>& compute) {
  return value_in(ctx.run, ctx, compute);
}

}  // namespace megatron
