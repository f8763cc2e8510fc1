// Memory of each rank of a group, on its GPU and on the host, that the GPUs of the others can access.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatron/comm/nccl/nccl_library.h"
#include "megatron/comm/nccl/shared_page.h"

namespace megatron {

/// CUDA's interprocess memory of ranks of one host whose GPUs have peer access. The owner frees memory, after
/// all others have disconnected; after a failure it is not freed, as others may still use it.
class PeerMemory {
 public:
  /// Gives all ranks the text of each, by index. Waits for them.
  using Exchange = std::function<std::vector<std::string>(const std::string& own)>;
  struct Made {
    std::unique_ptr<PeerMemory> memory;  // null, on all ranks, if one cannot access another
    std::string obstacle;                // the reason for null, the same on all ranks
  };

  /// `bytes` on this rank's GPU, which may be 0, and a page on the host. All ranks call it. @param own  index of this
  /// rank
  static Made make(size_t bytes, int own, const Exchange& exchange);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int own() const { return own_; }
  int num_ranks() const { return static_cast<int>(blocks_.size()); }
  /// Memory of the rank at `place`.
  std::byte* of(int place) const { return blocks_[static_cast<size_t>(place)].data; }
  size_t bytes_of(int place) const { return blocks_[static_cast<size_t>(place)].bytes; }
  const SharedPage& page_of(int place) const { return *blocks_[static_cast<size_t>(place)].page; }
  /// Closes the memory of the others, which is not used any more. When all have done so, each may free its own.
  void disconnect();
  /// From now on nothing is freed. Any thread.
  void leave() noexcept { is_left_ = true; }

 private:
  struct Block {
    std::byte* data = nullptr;  // null: none, or no access
    size_t bytes = 0;
    std::unique_ptr<SharedPage> page;
  };

  explicit PeerMemory(int own) : own_(own) {}
  /// Each returns the obstacle, or nothing.
  std::string allocate(size_t bytes);
  std::string open(const std::vector<std::string>& handles);
  std::string open_one(const std::string& text, int place);

  int own_;
  std::atomic<bool> is_left_ = true;  // until all ranks have reported their access: freeing waits for the GPU,
                                      // which may wait for a rank that is lost
  std::vector<Block> blocks_;
};

}  // namespace megatron
