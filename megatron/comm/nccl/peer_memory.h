// Memory of each rank of a group, on its GPU and on the host, that the GPUs of the others reach too.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatron/comm/nccl/nccl_library.h"
#include "megatron/comm/nccl/shared_page.h"

namespace megatron {

/// By CUDA's interprocess memory: ranks of one host whose GPUs reach each other. Freed when no rank uses it any more,
/// which the owner sees to; left alone after a failure, when others may still use it.
class PeerMemory {
 public:
  /// Gives all ranks the text of each, by place. Waits for them.
  using Exchange = std::function<std::vector<std::string>(const std::string& own)>;

  /// `bytes` on each rank's GPU and a page on the host; null, on all ranks, where one cannot reach another. All ranks
  /// call it. @param own  place of this rank
  static std::unique_ptr<PeerMemory> make(size_t bytes, int own, const Exchange& exchange);
  ~PeerMemory();
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  int own() const { return own_; }
  int num_ranks() const { return static_cast<int>(blocks_.size()); }
  /// Of the rank at `place`.
  std::byte* of(int place) const { return blocks_[static_cast<size_t>(place)]; }
  const SharedPage& page_of(int place) const { return *pages_[static_cast<size_t>(place)]; }
  /// From now on nothing is freed.
  void leave() noexcept { is_left_ = true; }

 private:
  explicit PeerMemory(int own) : own_(own) {}
  bool open(const std::vector<std::string>& handles);
  std::string handle() const;

  int own_;
  bool is_left_ = true;  // until all ranks have told whether they reach it: to free waits for the GPU, which may wait
                         // for a rank that is lost
  std::vector<std::byte*> blocks_;                  // null: not reached
  std::vector<std::unique_ptr<SharedPage>> pages_;  // so are these
};

}  // namespace megatron
