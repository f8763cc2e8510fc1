// The norm of tensors that many ranks hold parts of. Megatron Core: core/optimizer/clip_grads.py.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/distributed/distributed_data_parallel.h"
#include "megatron/kernels/gradient_statistics.h"

namespace megatron {

/// What this rank counts of a range that its optimizer owns, so that over all ranks each element of a logical tensor is
/// counted once: replicas count an equal part each (unless the optimizer's state is sharded, when no two own the same);
/// of a tensor that is whole on every tensor rank and of replicated sections (keys and values) the first rank counts
/// that has them, of tied tensors the first pipeline stage. Padding rows do not count: their number hangs on the
/// layout.
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
  void find_largest(const Context& ctx, const std::vector<Tensor>& parts);
  /// Second half: the sum of squares, and the zeros if asked for.
  void add_squares(const Context& ctx, const std::vector<Tensor>& parts, bool count_zeros);
  /// Third: the norm as it is.
  void finish(const Context& ctx);
  /// Third: the norm, times the step state's inverse_scale, and its clip_factor for this largest norm (0: no clipping);
  /// with `finds_overflow` also its found_inf.
  void finish(const Context& ctx, double max_norm, bool finds_overflow);

  /// What the host asks for, in device memory.
  const Tensor& norms() const { return norm_; }  // [2] fp64: largest absolute value, norm
  Tensor num_zeros() const { return sums_.slice(0, kZeros, 1); }

 private:
  static constexpr int kZeros = 3;  // place in sums_, behind the limbs
  const double* largest() const { return norm_.data<double>(); }
  kernels::ClipFactorArgs norm_args();

  ProcessGroup group_;
  Tensor norm_;
  Tensor sums_;   // [4] int64: limbs of the sum of squares, number of zeros
  Tensor guess_;  // [1] fp64: the largest of the step before, 0 before the first
};

}  // namespace megatron
