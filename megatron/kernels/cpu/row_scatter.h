// Sums of rows with the same target, the gradients of gathers, with the same bits on any number of threads.
#pragma once

#include "megatron/core/stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// A list of moves (source row of x -> target row of out), kept in a workspace of 8 bytes a move.
class RowScatter {
 public:
  explicit RowScatter(const View& workspace);
  void add(int64_t source, int64_t target);
  /// out[target] = sum of x[source] over the moves to that target, in the order of the sources, computed in the compute
  /// type and rounded once; other rows become zero. With `accumulate`, out[target] +=. x and out are [rows, h], x with
  /// all its dimensions but the last taken together.
  void run(const CpuStream& stream, const ConstView& x, const View& out, bool accumulate);

 private:
  uint64_t* moves_;  // target in the high half, source in the low half
  int64_t capacity_, count_ = 0;
};

}  // namespace megatron::kernels
