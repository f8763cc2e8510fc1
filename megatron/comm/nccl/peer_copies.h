// All-gather and reduce-scatter by the GPU's copy engines, which take no multiprocessor from the kernels beside them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "megatron/comm/nccl/peer_memory.h"
#include "megatron/comm/nccl/stream_flags.h"
#include "megatron/core/cuda/driver.h"

namespace megatron {

/// NCCL's kernels wait until a product that fills the GPU has ended, and then keep the next one's blocks waiting; a
/// copy runs beside both. Every rank copies a section into a slot of each other rank's memory and sets a flag for it,
/// for which that rank's stream waits; it uses the section and says by another flag that the slot is free again. No
/// host waits.
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
  enum Flag { kFilled, kFreed };
  struct Piece {
    size_t offset, bytes;  // of each section
    int slot;
  };
  /// `source(place)` is the section for that rank; `use(piece)` is called when a piece of all sections is there.
  void transfer(size_t bytes, NcclLibrary::Stream stream, const std::function<const std::byte*(int)>& source,
                const std::function<void(const Piece&)>& use);
  void send(const Piece& piece, const std::function<const std::byte*(int)>& source);
  /// Where `owner` receives from `source`.
  std::byte* slot(int owner, int source, int number) const;
  StreamFlag flag(int owner, Flag kind, int source) const;
  /// Sets this rank's flag at all others.
  void set_flags(Flag kind, NcclLibrary::Stream stream) const;
  /// Until those of all others are there.
  void await_flags(Flag kind, uint32_t value, NcclLibrary::Stream stream) const;
  template <class F>
  void for_each_peer(F&& f) const;

  std::unique_ptr<PeerMemory> memory_;
  CudaDriver driver_;
  size_t slot_bytes_;
  std::atomic<uint32_t> num_pieces_ = 0;  // of all operations; comparisons are cyclic
  NcclLibrary::Stream sending_ = nullptr;
  cudaEvent_t begin_ = nullptr, sent_ = nullptr;
};

}  // namespace megatron
