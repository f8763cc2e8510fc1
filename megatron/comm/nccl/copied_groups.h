// Copies rows and messages of a group between GPUs (GroupTraits::by_copy_engine). Needs no CUDA: the
// memory plan counts it everywhere.
#pragma once

#include <algorithm>
#include <cstdint>

namespace megatron {

struct CopiedGroups {
  static constexpr int kMostRanks = 8;  // GPUs of a host; larger groups use NCCL
  static constexpr int64_t kAnySize = int64_t{1} << 50;

  /// Bytes on each rank's GPU: slots for the data of each other rank. Data larger than a slot are sent in pieces.
  static constexpr int kRowSlots = 8, kMessageSlots = 4;
  /// @param section  bytes of the largest one, or kAnySize
  static constexpr int64_t row_bytes(int num_ranks, int64_t section) {
    const int64_t num_slots = kRowSlots * (num_ranks - 1);
    return num_slots * std::min(aligned(section), kMostRowBytes / num_slots / kAlignment * kAlignment);
  }
  /// Bytes on the receiver's GPU. @param message  bytes of the largest send of the channel, or kAnySize
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
