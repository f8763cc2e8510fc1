// Groups of ranks whose rows are copied between GPUs instead of going by NCCL, and what that takes. Needs no CUDA: the
// plan of memory counts it everywhere.
#pragma once

#include <cstdint>
#include <string_view>

namespace megatron {

struct CopiedGroups {
  static constexpr std::string_view kName = "tp";  // of training's
  static constexpr int kMostRanks = 8;             // larger ones go by NCCL
  /// Of each rank's GPU, for what the others send it; sections that are larger go piece by piece.
  static constexpr int64_t kBytesPerRank = int64_t{192} << 20;
};

}  // namespace megatron
