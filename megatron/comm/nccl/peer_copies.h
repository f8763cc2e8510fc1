// All-gather and reduce-scatter by the GPU's copy engines, which take no multiprocessor from concurrent kernels.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "megatron/comm/nccl/peer_memory.h"
#include "megatron/comm/nccl/stream_flags.h"
#include "megatron/core/cuda/driver.h"

namespace megatron {

/// NCCL's kernels wait until a matmul that fills the GPU has ended, and then delay the next one's blocks; a
/// copy runs concurrently. Every rank copies a section into a slot of each other rank's memory and sets a flag for it,
/// for which that rank's stream waits. It resets the flag, uses the section, and only then sends later ones: a rank
/// that has a section of the others knows that they have used those before it, and that their slots are free. So a
/// collective restores all flags, and a CUDA graph with one can be launched repeatedly. No host waits. Operations run
/// in the order of the calls, which is the same on all ranks; one thread calls.
class PeerCopies {
 public:
  /// @param memory  of at most CopiedGroups::kMostRanks ranks, each with some
  explicit PeerCopies(std::unique_ptr<PeerMemory> memory);
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// @param bytes of each rank's section
  void all_gather(const void* input, void* output, size_t bytes, NcclLibrary::Stream stream);
  /// Sums in rank order, in float. @param count  elements of a section, whose dtype sums_sections_of() knows
  void reduce_scatter(const void* input, void* output, size_t count, DType dtype, NcclLibrary::Stream stream);
  PeerMemory& memory() { return *memory_; }
  /// After a failure: ends waits for other ranks, whose data are then invalid. Call it repeatedly, because running
  /// ranks still set flags. Any thread.
  void release() noexcept;

 private:
  struct Piece {
    size_t offset, bytes;  // of each section
    int slot;
  };
  /// `source(place)` is the section for that rank; `use(piece)` is called when a piece of all sections has arrived.
  /// Some pieces are sent before earlier ones have arrived, but not in a graph, where a rank waits only after its own
  /// sends: the driver may put branches of a graph on one queue, where a wait for others must not block the data they
  /// wait for.
  void transfer(size_t bytes, NcclLibrary::Stream stream, const std::function<const std::byte*(int)>& source,
                const std::function<void(const Piece&)>& use);
  void send(const Piece& piece, const std::function<const std::byte*(int)>& source);
  /// The slot in which `owner` receives from `source`.
  std::byte* slot(int owner, int source, int number) const;
  /// The flag of a slot.
  StreamFlag flag(int owner, int source, int number) const;
  /// Waits until the sections of all others are in their slots; resets their flags.
  void await(int number, NcclLibrary::Stream stream) const;
  template <class F>
  void for_each_peer(F&& f) const;

  std::unique_ptr<PeerMemory> memory_;
  CudaDriver driver_;
  size_t slot_bytes_;
  int64_t num_pieces_ = 0;  // of all operations
  NcclLibrary::Stream sending_ = nullptr;
  cudaEvent_t begin_ = nullptr, sent_ = nullptr;
};

}  // namespace megatron
