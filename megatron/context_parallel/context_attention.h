// The attention of one layer, whose sequences context-parallel ranks share. Megatron Core: cp_comm_type.
#pragma once

#include <vector>

#include "megatron/comm/process_group.h"
#include "megatron/context_parallel/cp_comm_type.h"
#include "megatron/ops/attention.h"
#include "megatron/ops/split_qkv.h"

namespace megatron {

/// The ranks among which a layout may share its sequences.
struct ContextGroups {
  ProcessGroup cp;
  std::vector<ProcessGroup> levels;   // of kA2aP2p: the group that shares heads, then the ring
  std::vector<ProcessGroup> dynamic;  // further groups, for layouts of as many ranks (hybrid context parallelism)

  /// @throw InternalError if there is none of that size.
  const ProcessGroup& of_size(int64_t size) const;
};

/// A value. With one rank, and for a layout without context(), it computes attention().
class ContextAttention {
 public:
  ContextAttention() = default;
  ContextAttention(CpCommType type, const ContextGroups& groups);

  bool is_shared() const { return groups_.cp.size() > 1 || !groups_.dynamic.empty(); }
  /// @param x       of this rank's rows.
  /// @param layout  of these rows, with context() if ranks share the sequences.
  /// @return        [s / size, b, n * d] of the rows
  Tensor forward(Context& ctx, const QueryKeyValue& x, const SequenceLayout& layout, AttentionOptions options,
                 Parameter* sink) const;

  /// The number of ranks that share heads under a communication type, of `size` ranks in all. @param first_level  of
  /// kA2aP2p.
  static int64_t num_head_ranks(CpCommType type, int64_t size, int64_t first_level);

 private:
  CpCommType type_ = CpCommType::kP2p;
  ContextGroups groups_;
};

}  // namespace megatron
