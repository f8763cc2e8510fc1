#include "megatron/comm/nccl/peer_memory.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "megatron/comm/nccl/cuda_check.h"

namespace megatron {
namespace {

constexpr const char *kReached = "reached", *kNotReached = "not reached";

/// The same for processes that one kernel runs.
std::string host_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

std::unique_ptr<PeerMemory> PeerMemory::make(size_t bytes, int own, const Exchange& exchange) {
  std::unique_ptr<PeerMemory> made(new PeerMemory(own));
  void* data = nullptr;
  std::unique_ptr<SharedPage> page;
  if (cudaMalloc(&data, bytes) == cudaSuccess) page = SharedPage::make();
  made->blocks_ = {static_cast<std::byte*>(data)};
  made->pages_.push_back(std::move(page));
  const std::vector<std::string> handles = exchange(made->handle());
  const bool is_open = made->open(handles);
  cudaGetLastError();  // what could not be had is no error of a later launch
  const std::vector<std::string> verdicts = exchange(is_open ? kReached : kNotReached);
  const bool all_reach = std::ranges::all_of(verdicts, [](const std::string& text) { return text == kReached; });
  made->is_left_ = false;
  if (!all_reach) return nullptr;
  made->pages_[static_cast<size_t>(own)]->forget_name();
  return made;
}

/// Of host, memory and page, before those of others are there; empty: others cannot reach it.
std::string PeerMemory::handle() const {
  cudaIpcMemHandle_t handle{};
  if (!pages_[0] || cudaIpcGetMemHandle(&handle, blocks_[0]) != cudaSuccess) return {};
  return host_id() + '\n' + std::string(reinterpret_cast<const char*>(&handle), sizeof handle) + pages_[0]->name();
}

bool PeerMemory::open(const std::vector<std::string>& handles) {
  const auto own = static_cast<size_t>(own_);
  blocks_.resize(handles.size());
  pages_.resize(handles.size());
  std::swap(blocks_[0], blocks_[own]);
  std::swap(pages_[0], pages_[own]);
  const std::string host = host_id() + '\n';
  for (size_t place = 0; place < handles.size(); ++place) {
    const std::string& text = handles[place];
    if (!text.starts_with(host)) return false;
    if (place == own) continue;
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, text.data() + host.size(), sizeof handle);
    void* data = nullptr;
    if (cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) return false;
    blocks_[place] = static_cast<std::byte*>(data);
    pages_[place] = SharedPage::open(text.substr(host.size() + sizeof handle));
    if (!pages_[place]) return false;
  }
  return true;
}

PeerMemory::~PeerMemory() {
  if (is_left_) {
    for (auto& page : pages_) {
      if (page) page->forget_name();
      static_cast<void>(page.release());
    }
    return;
  }
  for (int place = 0; place < num_ranks(); ++place) {
    if (!of(place)) continue;
    if (place == own_)
      cudaFree(of(place));
    else
      cudaIpcCloseMemHandle(of(place));
  }
}

}  // namespace megatron
