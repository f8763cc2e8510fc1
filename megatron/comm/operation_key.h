// The properties of an operation on which the ranks of a group must agree.
#pragma once

#include <string>
#include <string_view>

#include "megatron/comm/operation.h"

namespace megatron {

struct OperationKey {
  CommOp op = CommOp::kBarrier;
  DType dtype = DType::kUInt8;
  /// all_reduce, broadcast, message: of the buffer; reduce_scatter, all_gather: of one section; all_to_all: 0.
  int64_t num_elements = 0;
  ReduceOp reduce = ReduceOp::kSum;
  int root = 0;  // of a broadcast; of a message: its tag
  bool operator==(const OperationKey&) const = default;
  int64_t bytes() const { return num_elements * size_of(dtype); }
  /// "all_reduce(float32, 16 elements, sum)"
  std::string to_string() const;
};

/// One rank's side of a disagreement.
struct Call {
  int rank;  // global
  OperationKey key;
  std::string operation;  // describe()
};
/// The text of a CommError for two calls that should have been the same in `group`.
std::string describe_disagreement(std::string_view group, const Call& first, const Call& second);

/// One rank's name for a group in World::split().
struct SplitCall {
  int rank;  // global
  std::string_view name;
};
/// The text of a CommError for two calls number `split` of World::split() with different names or ranks.
std::string describe_disagreement(size_t split, const SplitCall& first, const SplitCall& second);

}  // namespace megatron
