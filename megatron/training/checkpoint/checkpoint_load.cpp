#include "megatron/training/checkpoint/checkpoint_load.h"

#include <algorithm>
#include <future>
#include <sstream>

#include "megatron/comm/texts.h"
#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/training/checkpoint/checkpoint_share.h"

namespace megatron {
namespace {

constexpr int64_t kBroadcastBytes = 1 << 30;  // at once

/// A tensor in host memory, of the dtype that it is stored with.
struct LoadedTensor {
  DType dtype = DType::kFloat32;
  std::vector<std::byte> bytes;
};

DType dtype_on_disk(const StoredTensors& reader, const std::string& key, const Tensor& tensor) {
  const auto type = reader.type_of(key);
  return type ? info(*type).dtype.value_or(tensor.dtype()) : tensor.dtype();
}

/// @param memory  is used again: new memory would be cleared page by page.
LoadedTensor host_tensor_for(const StoredTensors& reader, const std::string& key, const Tensor& tensor,
                             std::vector<std::byte> memory = {}) {
  const DType dtype = dtype_on_disk(reader, key, tensor);
  memory.resize(static_cast<size_t>(tensor.num_elements() * size_of(dtype)));
  return {dtype, std::move(memory)};
}

bool is_covered(const LoadRequest& request, const LoadedTensor& host) {
  int64_t num_elements = 0;
  for (const CheckpointChunk& chunk : request.placement.chunks) num_elements += chunk.sizes.num_elements();
  return num_elements * size_of(host.dtype) == std::ssize(host.bytes);
}

void read_from_files(const StoredTensors& reader, const LoadRequest& request, LoadedTensor& host) {
  const CheckpointPlacement& placement = request.placement;
  if (!is_covered(request, host)) std::ranges::fill(host.bytes, std::byte{});
  for (const CheckpointChunk& chunk : placement.chunks) {
    const View destination{host.bytes.data() + chunk.first * size_of(host.dtype), host.dtype, chunk.sizes,
                           chunk.strides};
    if (placement.is_padded)
      reader.read_resized_tensor(request.key, chunk.offsets, destination);
    else
      reader.read_tensor(request.key, placement.global_shape, chunk.offsets, destination);
  }
}

/// Converts where the run has another precision than the checkpoint.
void put(const LoadedTensor& host, const Context& ctx, const LoadRequest& request, Tensor& tensor) {
  if (host.dtype == tensor.dtype()) {
    copy_from_host(ctx.device, host.bytes, tensor.view().data);
  } else {
    Tensor staged = ctx.empty("checkpoint.staged", tensor.shape(), host.dtype, MemoryUse::kWorkspace);
    copy_from_host(ctx.device, host.bytes, staged.view().data);
    launch(ctx, {.name = "copy"},
           [&](auto& stream) { kernels::copy(stream, {.x = std::as_const(staged).view(), .y = tensor.view()}); });
  }
  if (request.put_back) request.put_back(tensor);
}

void broadcast(const ProcessGroup& replicas, std::span<std::byte> bytes, int owner) {
  for (size_t begin = 0; begin < bytes.size(); begin += kBroadcastBytes) {
    const auto piece = bytes.subspan(begin, std::min<size_t>(kBroadcastBytes, bytes.size() - begin));
    replicas.broadcast({piece.data(), DType::kUInt8, {std::ssize(piece)}, {1}}, owner, {.site = "checkpoint tensor"})
        .wait();
  }
}

/// The indices of requests in the order of their places on disk.
std::vector<size_t> order_on_disk(const StoredTensors& reader, std::span<const LoadRequest> requests) {
  std::vector<std::pair<StoredPlace, size_t>> places;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto& chunks = requests[i].placement.chunks;
    places.emplace_back(chunks.empty() ? StoredPlace{} : reader.place_of(requests[i].key, chunks.front().offsets), i);
  }
  std::ranges::sort(places);
  std::vector<size_t> order;
  for (const auto& place : places) order.push_back(place.second);
  return order;
}

}  // namespace

void require_matching_keys(const CheckpointReader& reader, std::initializer_list<std::span<const LoadRequest>> lists,
                           StrictHandling handling, const ProcessGroup& world, const MessageLog& log) {
  if (handling == StrictHandling::kAssumeOkUnexpected || handling == StrictHandling::kIgnoreAll) return;
  std::string own;
  for (const auto& list : lists)
    for (const LoadRequest& request : list) own += request.key + "\n";
  std::set<std::string> requested;
  for (const std::string& keys : gather_texts(world, own, "requested tensors")) {
    std::istringstream lines(keys);
    for (std::string key; std::getline(lines, key);) requested.insert(key);
  }
  report_mismatch(handling, compare_keys(reader.whole_tensors(), requested), reader.directory(), log);
}

void leave_out_unexpected(const CheckpointReader& reader, LoadRequests& requests) {
  std::erase_if(requests, [&](const LoadRequest& request) { return !reader.has_tensor(request.key); });
}

/// While one tensor is put into the rank's memory, another thread reads the next.
void read(const StoredTensors& reader, std::span<const LoadRequest> requests, const Context& ctx) {
  const std::vector<size_t> order = order_on_disk(reader, requests);
  std::vector<std::byte> spare;
  Tensor next_tensor;
  const auto start = [&](size_t i) {
    const LoadRequest& request = requests[order[i]];
    next_tensor = request.tensor();
    return std::async(
        [&reader, &request, host = host_tensor_for(reader, request.key, next_tensor, std::move(spare))]() mutable {
          read_from_files(reader, request, host);
          return std::move(host);
        });
  };
  std::future<LoadedTensor> next;
  if (!order.empty()) next = start(0);
  for (size_t i = 0; i < order.size(); ++i) {
    LoadedTensor host = next.get();
    Tensor tensor = std::move(next_tensor);
    if (i + 1 < order.size()) next = start(i + 1);
    put(host, ctx, requests[order[i]], tensor);
    spare = std::move(host.bytes);
  }
}

void read_shared(const StoredTensors& reader, std::span<const LoadRequest> requests, const Context& ctx,
                 const ProcessGroupCollection& groups) {
  ReplicaDealer dealer(groups, true);
  std::vector<int> owners;
  std::vector<LoadedTensor> own(requests.size());
  const auto is_owner = [&](size_t i) { return owners[i] == dealer.replicas(*requests[i].parameter).rank(); };
  for (const LoadRequest& request : requests) {
    const Tensor tensor = request.tensor();
    owners.push_back(dealer.owner_of(*request.parameter,
                                     tensor.num_elements() * size_of(dtype_on_disk(reader, request.key, tensor))));
  }
  for (const size_t i : order_on_disk(reader, requests)) {
    if (!is_owner(i)) continue;
    own[i] = host_tensor_for(reader, requests[i].key, requests[i].tensor());
    read_from_files(reader, requests[i], own[i]);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    Tensor tensor = requests[i].tensor();
    LoadedTensor host = is_owner(i) ? std::move(own[i]) : host_tensor_for(reader, requests[i].key, tensor);
    broadcast(dealer.replicas(*requests[i].parameter), host.bytes, owners[i]);
    put(host, ctx, requests[i], tensor);
  }
}

}  // namespace megatron
