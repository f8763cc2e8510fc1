// The classes of ops that a profile adds up.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "megatron/core/profiler.h"

namespace megatron {

enum class OpClass {
  kMatmul,
  kAttention,
  kNorm,
  kElementwise,
  kLoss,
  kOptimizer,
  kCommunication,
  kCopy,
  kOther,
};
inline constexpr std::array kOpClasses = {OpClass::kMatmul,        OpClass::kAttention, OpClass::kNorm,
                                          OpClass::kElementwise,   OpClass::kLoss,      OpClass::kOptimizer,
                                          OpClass::kCommunication, OpClass::kCopy,      OpClass::kOther};
std::string_view name_of(OpClass op_class);

/// Class of an op by the name that a profile gives it; nothing for one that the table does not have.
std::optional<OpClass> class_of(std::string_view op);

/// ".B" and ".W" as in the names of a schedule's actions, behind the name of an op.
std::string_view suffix_of(Pass pass);

}  // namespace megatron
