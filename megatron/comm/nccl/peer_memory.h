// Memory of each rank of a group, on its GPU and on the host, that the GPUs of the others reach too.
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

/// By CUDA's interprocess memory: ranks of one host whose GPUs reach each other. Memory is freed by its owner, which
/// sees to it that all others have disconnected before; left alone after a failure, when others may still use it.
class PeerMemory {
 public:
  /// Gives all ranks the text of each, by place. Waits for them.
  using Exchange = std::function<std::vector<std::string>(const std::string& own)>;
  struct Made {
    std::unique_ptr<PeerMemory> memory;  // null, on all ranks, where one cannot reach another
    std::string obstacle;                // then: why, the same on all ranks
  };

  /// `bytes` on this rank's GPU, which may be 0, and a page on the host. All ranks call it. @param own  place of this
  /// rank
  static Made make(size_t bytes, int own, const Exchange& exchange);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int own() const { return own_; }
  int num_ranks() const { return static_cast<int>(blocks_.size()); }
  /// Of the rank at `place`.
  std::byte* of(int place) const { return blocks_[static_cast<size_t>(place)].data; }
  size_t bytes_of(int place) const { return blocks_[static_cast<size_t>(place)].bytes; }
  const SharedPage& page_of(int place) const { return *blocks_[static_cast<size_t>(place)].page; }
  /// Lets go of what the others own; nothing is used any more. When all have done so, each may free its own.
  void disconnect();
  /// From now on nothing is freed. Any thread.
  void leave() noexcept { is_left_ = true; }

 private:
  struct Block {
    std::byte* data = nullptr;  // null: none, or not reached
    size_t bytes = 0;
    std::unique_ptr<SharedPage> page;
  };

  explicit PeerMemory(int own) : own_(own) {}
  /// Each gives what is in the way, or nothing.
  std::string allocate(size_t bytes);
  std::string open(const std::vector<std::string>& handles);
  std::string open_one(const std::string& text, int place);

  int own_;
  std::atomic<bool> is_left_ = true;  // until all ranks have told whether they reach it: to free waits for the GPU,
                                      // which may wait for a rank that is lost
  std::vector<Block> blocks_;
};

}  // namespace megatron
