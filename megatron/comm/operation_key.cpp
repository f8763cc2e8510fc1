#include "megatron/comm/operation_key.h"

#include <fmt/core.h>

namespace megatron {

std::string OperationKey::to_string() const {
  const auto operands = [&] { return fmt::format("{}, {} elements", name_of(dtype), num_elements); };
  switch (op) {
    case CommOp::kAllReduce:
    case CommOp::kReduceScatter:
      return fmt::format("{}({}, {})", name_of(op), operands(), name_of(reduce));
    case CommOp::kBroadcast:
      return fmt::format("{}({}, root {})", name_of(op), operands(), root);
    case CommOp::kAllGather:
      return fmt::format("{}({})", name_of(op), operands());
    case CommOp::kAllToAll:
      return fmt::format("{}({})", name_of(op), name_of(dtype));
    case CommOp::kBarrier:
      return std::string(name_of(op));
    case CommOp::kSend:
    case CommOp::kReceive:
      return fmt::format("message({}, tag {})", operands(), root);
  }
  return {};
}

std::string describe_disagreement(std::string_view group, const Call& first, const Call& second) {
  return fmt::format(
      "[{}] ranks disagree: rank {} called {} as {}, rank {} called {} as {}. All ranks of a group must issue the same "
      "operations, of the same sizes, in the same order.",
      group, first.rank, first.key.to_string(), first.operation, second.rank, second.key.to_string(), second.operation);
}

std::string describe_disagreement(size_t split, const SplitCall& first, const SplitCall& second) {
  return fmt::format(
      "[split] ranks disagree: call {} is \"{}\" on rank {} and \"{}\" on rank {}{}. All ranks must make the same "
      "groups in "
      "the same order.",
      split, first.name, first.rank, second.name, second.rank, first.name == second.name ? ", with other ranks" : "");
}

}  // namespace megatron
