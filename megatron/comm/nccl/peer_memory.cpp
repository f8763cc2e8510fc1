#include "megatron/comm/nccl/peer_memory.h"

#include <fmt/core.h>

#include <cstring>
#include <sstream>
#include <utility>

#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/rank_places.h"

namespace megatron {
namespace {

/// Prefix of a text in place of a handle.
constexpr char kObstacle = '!';

/// The handle by which another process finds a block.
struct Handle {
  std::string host, page;
  size_t bytes = 0;
  cudaIpcMemHandle_t memory{};

  std::string serialize() const {
    return fmt::format("{}\n{}\n{}\n", host, page, bytes) +
           std::string(reinterpret_cast<const char*>(&memory), sizeof memory);
  }
  static Handle parse(const std::string& text) {
    Handle handle;
    std::istringstream words(text);
    words >> handle.host >> handle.page >> handle.bytes;
    require<CommError>(!words.fail() && text.size() > sizeof handle.memory, "[PeerMemory] a handle of {} bytes",
                       text.size());
    std::memcpy(&handle.memory, text.data() + text.size() - sizeof handle.memory, sizeof handle.memory);
    return handle;
  }
};

/// Describes the error of a failed call and clears it, so that no later launch reports it.
std::string describe(cudaError_t status, const char* call) {
  cudaGetLastError();
  return fmt::format("{}: {}", call, cudaGetErrorString(status));
}

}  // namespace

PeerMemory::Made PeerMemory::make(size_t bytes, int own, const Exchange& exchange) {
  std::unique_ptr<PeerMemory> made(new PeerMemory(own));
  made->blocks_.resize(1);
  Handle handle{.host = host_identity(), .page = {}, .bytes = bytes, .memory = {}};
  std::string obstacle = made->allocate(bytes);
  if (obstacle.empty() && bytes > 0)
    if (const auto status = cudaIpcGetMemHandle(&handle.memory, made->blocks_[0].data); status != cudaSuccess)
      obstacle = describe(status, "cudaIpcGetMemHandle");
  if (obstacle.empty()) handle.page = made->blocks_[0].page->name();
  const std::vector<std::string> handles = exchange(obstacle.empty() ? handle.serialize() : kObstacle + obstacle);
  const std::vector<std::string> verdicts = exchange(made->open(handles));
  for (const std::string& verdict : verdicts) {
    if (verdict.empty()) continue;
    made->disconnect();
    exchange({});
    made->is_left_ = false;
    return {nullptr, verdict};
  }
  made->is_left_ = false;
  made->blocks_[static_cast<size_t>(own)].page->forget_name();
  return {std::move(made), {}};
}

std::string PeerMemory::allocate(size_t bytes) {
  Block& block = blocks_[0];
  block.bytes = bytes;
  void* data = nullptr;
  if (bytes > 0)
    if (const auto status = cudaMalloc(&data, bytes); status != cudaSuccess) return describe(status, "cudaMalloc");
  block.data = static_cast<std::byte*>(data);
  block.page = SharedPage::make();
  return block.page ? "" : "a host has no shared memory that its GPU can access";
}

std::string PeerMemory::open(const std::vector<std::string>& handles) {
  blocks_.resize(handles.size());
  std::swap(blocks_[0], blocks_[static_cast<size_t>(own_)]);
  for (int place = 0; place < num_ranks(); ++place)
    if (std::string obstacle = open_one(handles[static_cast<size_t>(place)], place); !obstacle.empty()) return obstacle;
  return {};
}

std::string PeerMemory::open_one(const std::string& text, int place) {
  if (text.starts_with(kObstacle)) return text.substr(1);
  if (place == own_) return {};
  const Handle handle = Handle::parse(text);
  if (handle.host != host_identity()) return "ranks are on several hosts";
  Block& block = blocks_[static_cast<size_t>(place)];
  block.bytes = handle.bytes;
  void* data = nullptr;
  if (handle.bytes > 0)
    if (const auto status = cudaIpcOpenMemHandle(&data, handle.memory, cudaIpcMemLazyEnablePeerAccess);
        status != cudaSuccess)
      return describe(status, "a GPU cannot access another; cudaIpcOpenMemHandle");
  block.data = static_cast<std::byte*>(data);
  block.page = SharedPage::open(handle.page);
  return block.page ? "" : "processes of one host cannot share host memory";
}

void PeerMemory::disconnect() {
  for (int place = 0; place < num_ranks(); ++place)
    if (place != own_ && of(place))
      cudaIpcCloseMemHandle(std::exchange(blocks_[static_cast<size_t>(place)].data, nullptr));
}

PeerMemory::~PeerMemory() {
  if (is_left_) {
    for (Block& block : blocks_) {
      if (block.page) block.page->forget_name();
      static_cast<void>(block.page.release());
    }
    return;
  }
  disconnect();
  cudaFree(blocks_[static_cast<size_t>(own_)].data);
}

}  // namespace megatron
