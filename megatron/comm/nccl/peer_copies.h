// All-gather and reduce-scatter by the GPU's copy engines, which take no multiprocessor from the kernels beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "megatron/comm/nccl/peer_memory.h"
#include "megatron/comm/nccl/stream_flags.h"
#include "megatron/core/cuda/driver.h"

namespace megatron {

/// NCCL's kernels wait until a product that fills the GPU has ended, and then keep the next one's blocks waiting; a
/// copy runs beside both. Every rank copies a section into a slot of each other rank's memory and sets a flag for it,
/// for which that rank's stream waits. It takes the flag back and uses the section, and sends later ones only then: who
/// has a section of the others knows that they have used those before it, and has their slots again. So an exchange
/// leaves all as it was, and one that is part of a CUDA graph can be launched again and again. No host waits.
/// Operations take effect in the order of the calls, which is the same on all ranks; one thread calls.
class PeerCopies {
 public:
  /// @param memory  of at most CopiedGroups::kMostRanks, each with some
  explicit PeerCopies(std::unique_ptr<PeerMemory> memory);
  ~PeerCopies();
  PeerCopies(const PeerCopies&) = delete;
  PeerCopies& operator=(const PeerCopies&) = delete;

  /// @param bytes of each rank's section
  void all_gather(const void* input, void* output, size_t bytes, NcclLibrary::Stream stream);
  /// Sums in rank order, in float. @param count  elements of a section, whose dtype sums_sections_of() knows
  void reduce_scatter(const void* input, void* output, size_t count, DType dtype, NcclLibrary::Stream stream);
  PeerMemory& memory() { return *memory_; }
  /// After a failure: what waits for other ranks goes on, with whatever is there. Again and again, for ranks that still
  /// run set flags. Any thread.
  void release() noexcept;

 private:
  struct Piece {
    size_t offset, bytes;  // of each section
    int slot;
  };
  /// `source(place)` is the section for that rank; `use(piece)` is called when a piece of all sections is there. Some
  /// pieces are sent before those ahead of them are there; in a graph none is, and none is awaited before it is sent:
  /// its driver may give branches of a graph one queue, where a wait for the others must not hold up what they wait
  /// for.
  void transfer(size_t bytes, NcclLibrary::Stream stream, const std::function<const std::byte*(int)>& source,
                const std::function<void(const Piece&)>& use);
  void send(const Piece& piece, const std::function<const std::byte*(int)>& source);
  /// Where `owner` receives from `source`.
  std::byte* slot(int owner, int source, int number) const;
  /// That of a slot.
  StreamFlag flag(int owner, int source, int number) const;
  /// Until the sections of all others are in their slots; takes their flags back.
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
