// The attention of one layer, whose sequences context-parallel ranks share. Megatron Core: cp_comm_type.
#pragma once

#include <vector>

#include "megatron/comm/process_group.h"
#include "megatron/context_parallel/cp_comm_type.h"
#include "megatron/ops/attention.h"
#include "megatron/ops/split_qkv.h"

namespace megatron {

/// A value. With one rank it computes attention().
class ContextAttention {
 public:
  ContextAttention() = default;
  /// @param levels  of kA2aP2p: the group that shares heads, then the ring; not read for others.
  ContextAttention(CpCommType type, const ProcessGroup& group, const std::vector<ProcessGroup>& levels);

  bool is_shared() const { return group_.size() > 1; }
  /// @param x       of this rank's rows.
  /// @param layout  of these rows, with context() if ranks share the sequences.
  /// @return        [s / size, b, n * d] of the rows
  Tensor forward(Context& ctx, const QueryKeyValue& x, const SequenceLayout& layout, AttentionOptions options,
                 Parameter* sink) const;

  /// The number of ranks that share heads under a communication type, of `size` ranks in all. @param first_level  of
  /// kA2aP2p.
  static int64_t num_head_ranks(CpCommType type, int64_t size, int64_t first_level);

 private:
  bool gathers_keys_ = false;
  ProcessGroup group_, heads_, ring_;
};

}  // namespace megatron
