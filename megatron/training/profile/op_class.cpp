#include "megatron/training/profile/op_class.h"

#include <algorithm>

namespace megatron {
namespace {

struct Entry {
  std::string_view op;
  OpClass op_class;
};

// Names are those of OpNote, or stems of source files.
constexpr auto kTable = std::to_array<Entry>({
    {"linear", OpClass::kMatmul},
    {"grouped_linear", OpClass::kMatmul},
    {"matmul", OpClass::kMatmul},
    {"attention", OpClass::kAttention},
    {"merge_attention", OpClass::kAttention},
    {"layer_norm", OpClass::kNorm},
    {"rms_norm", OpClass::kNorm},
    {"activation", OpClass::kElementwise},
    {"add", OpClass::kElementwise},
    {"bias_dropout_add", OpClass::kElementwise},
    {"column_sum", OpClass::kElementwise},
    {"row_dots", OpClass::kElementwise},
    {"scale_rows", OpClass::kElementwise},
    {"soft_cap", OpClass::kElementwise},
    {"input_jitter", OpClass::kElementwise},
    {"sum_heads", OpClass::kElementwise},
    {"weighted_activation", OpClass::kElementwise},
    {"accumulate", OpClass::kLoss},
    {"cross_entropy", OpClass::kLoss},
    {"loss_seed", OpClass::kLoss},
    {"loss_sum", OpClass::kLoss},
    {"masked_sum", OpClass::kLoss},
    {"moe_metric", OpClass::kLoss},
    {"global_norm", OpClass::kOptimizer},
    {"optimizer", OpClass::kOptimizer},
    {"scale", OpClass::kOptimizer},
    {"copy", OpClass::kCopy},
    {"copy_from_host", OpClass::kCopy},
    {"copy_on_device", OpClass::kCopy},
    {"copy_to_host", OpClass::kCopy},
    {"fill", OpClass::kCopy},
    {"fill_normal", OpClass::kCopy},
    {"fill_zero", OpClass::kCopy},
    {"move_rows", OpClass::kCopy},
    {"order_rows", OpClass::kCopy},
    {"permute", OpClass::kCopy},
    {"permute_probs", OpClass::kCopy},
    {"sequential_mlp", OpClass::kCopy},
    {"token_dispatcher", OpClass::kCopy},
    {"topk_router", OpClass::kCopy},
    {"unpermute", OpClass::kCopy},
    {"split_qkv", OpClass::kCopy},
    {"embedding", OpClass::kOther},
    {"rope", OpClass::kOther},
    {"router", OpClass::kOther},
    {"router_logits", OpClass::kOther},
    {"sort_by_expert", OpClass::kOther},
});

}  // namespace

std::string_view name_of(OpClass op_class) {
  switch (op_class) {
    case OpClass::kMatmul:
      return "matrix products";
    case OpClass::kAttention:
      return "attention";
    case OpClass::kNorm:
      return "norms";
    case OpClass::kElementwise:
      return "activations, biases, residuals";
    case OpClass::kLoss:
      return "loss";
    case OpClass::kOptimizer:
      return "optimizer and norm";
    case OpClass::kCommunication:
      return "communication";
    case OpClass::kCopy:
      return "copies and fills";
    case OpClass::kOther:
      return "other";
  }
  return "unknown";
}

std::optional<OpClass> class_of(std::string_view op) {
  const auto found = std::ranges::find(kTable, op, &Entry::op);
  return found == kTable.end() ? std::nullopt : std::optional(found->op_class);
}

std::string_view suffix_of(Pass pass) {
  switch (pass) {
    case Pass::kNone:
    case Pass::kForward:
      return "";
    case Pass::kRecompute:
      return ".recompute";
    case Pass::kInputGradient:
      return ".B";
    case Pass::kWeightGradient:
      return ".W";
  }
  return "";
}

}  // namespace megatron
