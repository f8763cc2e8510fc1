// Groups of ranks whose rows and messages are copied between GPUs instead of going by NCCL, and what that takes. Needs
// no CUDA: the plan of memory counts it everywhere.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

struct CopiedGroups {
  static constexpr std::array<std::string_view, 2> kNames = {"tp", "pp"};  // of training's
  static constexpr int kMostRanks = 8;  // the rows of larger ones go by NCCL; so many GPUs has a host
  static constexpr int64_t kAnySize = int64_t{1} << 50;

  static std::vector<std::string> names() { return {kNames.begin(), kNames.end()}; }
  static constexpr bool contains(std::string_view group) {
    return std::find(kNames.begin(), kNames.end(), group) != kNames.end();
  }

  /// Of each rank's GPU: slots for what each other one sends it. What is larger than a slot goes piece by piece.
  static constexpr int kRowSlots = 8, kMessageSlots = 4;
  /// @param section  bytes of the largest one, or kAnySize
  static constexpr int64_t row_bytes(int num_ranks, int64_t section) {
    const int64_t num_slots = kRowSlots * (num_ranks - 1);
    return num_slots * std::min(aligned(section), kMostRowBytes / num_slots / kAlignment * kAlignment);
  }
  /// Of the receiver. @param message  bytes of the largest one of the channel, or kAnySize
  static constexpr int64_t message_bytes(int64_t message) {
    return kMessageSlots * std::min(aligned(message), kMostMessageSlotBytes);
  }

 private:
  static constexpr int64_t kAlignment = 512, kMostRowBytes = int64_t{192} << 20,
                           kMostMessageSlotBytes = int64_t{8} << 20;
  static constexpr int64_t aligned(int64_t bytes) {
    return (std::max<int64_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  }
};

}  // namespace megatron
