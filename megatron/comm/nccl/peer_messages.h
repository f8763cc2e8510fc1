// Sends from one rank to another by the GPU's copy engines, which take no multiprocessor from concurrent
// kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "megatron/comm/nccl/peer_memory.h"
#include "megatron/comm/nccl/stream_flags.h"
#include "megatron/core/cuda/driver.h"

namespace megatron {

/// A receive is posted long before its data arrive, and NCCL's kernel spins until then beside the matmuls; a stream
/// that waits for a flag does not. The sender copies its data piece by piece into slots of the receiver's memory and
/// sets a flag for each; the receiver's stream waits for it, copies the piece to its place and marks by another flag
/// that the slot is free again. A send is done when its last piece is in a slot. Sends of a channel arrive in the order
/// of the calls, which one thread makes.
class PeerMessages {
 public:
  /// @param memory  of two ranks: the sender at index 0, which needs none, and the receiver
  explicit PeerMessages(std::unique_ptr<PeerMemory> memory);
  PeerMessages(const PeerMessages&) = delete;
  PeerMessages& operator=(const PeerMessages&) = delete;

  /// Call it on the sender. @param bytes  equal to the receiver's
  void send(const void* input, size_t bytes, NcclLibrary::Stream stream);
  /// Call it on the receiver.
  void receive(void* output, size_t bytes, NcclLibrary::Stream stream);

  PeerMemory& memory() { return *memory_; }
  /// After a failure: ends waits for the other rank, whose data are then invalid. Call it repeatedly, because a rank
  /// that still runs sets flags. Any thread.
  void release() noexcept;

 private:
  /// Calls `copy(offset, slot, bytes)` for each piece, when its slot is ready.
  template <class F>
  void transfer(size_t bytes, NcclLibrary::Stream stream, F&& copy);

  std::unique_ptr<PeerMemory> memory_;
  CudaDriver driver_;
  size_t slot_bytes_;
  std::atomic<uint32_t> num_pieces_ = 0;  // of all messages
};

}  // namespace megatron
