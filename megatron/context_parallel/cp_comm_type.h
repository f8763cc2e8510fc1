// How context-parallel ranks share attention, by Megatron Core's names.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

namespace megatron {

/// kP2p: keys and values travel in a ring. kAllGather: every rank gathers all of them. kA2a: every rank gathers the
/// tokens of its part of the heads. kA2aP2p: ranks of one group share heads, and these groups form a ring.
enum class CpCommType : uint8_t { kP2p, kAllGather, kA2a, kA2aP2p };

/// Names as on the command line and in checkpoints.
constexpr auto names_of_enum(CpCommType) {
  return std::to_array<std::pair<CpCommType, std::string_view>>({{CpCommType::kP2p, "p2p"},
                                                                 {CpCommType::kAllGather, "all_gather"},
                                                                 {CpCommType::kA2a, "a2a"},
                                                                 {CpCommType::kA2aP2p, "a2a+p2p"}});
}

}  // namespace megatron
