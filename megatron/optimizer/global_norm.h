// The norm of tensors that many ranks hold parts of. Megatron Core: core/optimizer/clip_grads.py.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/distributed/distributed_data_parallel.h"
#include "megatron/kernels/gradient_statistics.h"

namespace megatron {

/// The part of an optimizer's range that this rank counts, so that over all ranks each element of a logical tensor is
/// counted once: replicas count an equal part each (unless the optimizer's state is sharded, when no two own the same);
/// a box that several places of the grid hold is counted by its owner (shard_boxes), a tied tensor by its first holder.
/// Padding rows do not count, for their number depends on the layout.
std::vector<FlatRange> counted_ranges(const FlatRange& range, const DistributedDataParallel& ddp);

/// The gradients of these ranges as flat tensors, as few as there can be: ranges that meet in a buffer are one.
std::vector<Tensor> merged_grads(const std::vector<FlatRange>& ranges, const DistributedDataParallel& ddp);

/// L2 norm and number of zeros over all ranks of a group. Its bits depend on the values alone, not on which rank holds
/// them or in which pieces (kernels/gradient_statistics.h). Results stay in device memory.
class GlobalNorm {
 public:
  /// @param group  all ranks that hold parts; all of them call the functions below in the same order.
  GlobalNorm(const Context& ctx, const ProcessGroup& group);

  /// First half: the largest absolute value of `parts`, flat contiguous tensors; infinite or NaN if an element is.
  void find_largest(const Context& ctx, const std::vector<Tensor>& parts) { find_largest(ctx, parts, nullptr); }
  /// The same for gradients. The step state's overflow travels with it: all ranks learn that one had one.
  void find_largest_and_overflow(const Context& ctx, const std::vector<Tensor>& parts) {
    find_largest(ctx, parts, &ctx.step.overflow);
  }
  /// Second half: the sum of squares, and the zeros if requested.
  void add_squares(const Context& ctx, const std::vector<Tensor>& parts, bool count_zeros);
  /// Third: the norm as it is.
  void finish(const Context& ctx);
  /// Third: the norm, times the step state's inverse_scale, and its clip_factor for this largest norm (0: no clipping);
  /// also its found_inf, where a rank's step state had an overflow, and with `finds_overflow` where an element is not
  /// finite.
  void finish(const Context& ctx, double max_norm, bool finds_overflow);

  /// The results that the host reads, in device memory.
  Tensor norms() const { return results_.slice(0, kLargest, 2); }  // [2] fp64: largest absolute value, norm
  Tensor overflow() const {
    return results_.slice(0, kOverflow, 1);
  }  // [1]: the bits of an int64, not 0: there was one
  Tensor num_zeros() const { return sums_.slice(0, kZeros, 1); }

 private:
  static constexpr int kZeros = 3;                              // place in sums_, behind the limbs
  static constexpr int kOverflow = 0, kLargest = 1, kNorm = 2;  // places in results_

  void find_largest(const Context& ctx, const std::vector<Tensor>& parts, const int32_t* overflow);
  double* result(int place) { return at_place(results_.data<double>(), place); }
  const double* largest() const { return at_place(results_.data<double>(), kLargest); }
  template <class T>
  static T* at_place(T* first, int place) {
    return first ? first + place : nullptr;  // none on the meta device
  }
  kernels::ClipFactorArgs norm_args();

  ProcessGroup group_;
  Tensor results_;  // [3]: overflow as int64; largest absolute value and norm as fp64
  Tensor sums_;     // [4] int64: limbs of the sum of squares, number of zeros
  Tensor guess_;    // [1] fp64: the largest of the step before, 0 before the first
};

}  // namespace megatron
