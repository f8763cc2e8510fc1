#include "megatron/training/checkpoint/checkpoint_load.h"

#include <algorithm>
#include <sstream>

#include "megatron/comm/texts.h"
#include "megatron/core/copy.h"
#include "megatron/kernels/cuda/elementwise.h"
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

LoadedTensor host_tensor_for(const StoredTensors& reader, const std::string& key, const Tensor& tensor) {
  const auto type = reader.type_of(key);
  const DType dtype = type ? info(*type).dtype.value_or(tensor.dtype()) : tensor.dtype();
  return {dtype, std::vector<std::byte>(static_cast<size_t>(tensor.num_elements() * size_of(dtype)))};
}

void read_from_files(const StoredTensors& reader, const LoadRequest& request, LoadedTensor& host) {
  const CheckpointPlacement& placement = request.placement;
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

void read(const StoredTensors& reader, std::span<const LoadRequest> requests, const Context& ctx) {
  for (const LoadRequest& request : requests) {
    Tensor tensor = request.tensor();
    LoadedTensor host = host_tensor_for(reader, request.key, tensor);
    read_from_files(reader, request, host);
    put(host, ctx, request, tensor);
  }
}

void read_shared(const StoredTensors& reader, std::span<const LoadRequest> requests, const Context& ctx,
                 const ProcessGroupCollection& groups) {
  ReplicaDealer dealer(groups, true);
  std::vector<int> owners;
  std::vector<LoadedTensor> own(requests.size());
  const auto is_owner = [&](size_t i) { return owners[i] == dealer.replicas(*requests[i].parameter).rank(); };
  for (size_t i = 0; i < requests.size(); ++i) {
    LoadedTensor host = host_tensor_for(reader, requests[i].key, requests[i].tensor());
    owners.push_back(dealer.owner_of(*requests[i].parameter, std::ssize(host.bytes)));
    if (!is_owner(i)) continue;
    read_from_files(reader, requests[i], host);
    own[i] = std::move(host);
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    Tensor tensor = requests[i].tensor();
    LoadedTensor host = is_owner(i) ? std::move(own[i]) : host_tensor_for(reader, requests[i].key, tensor);
    broadcast(dealer.replicas(*requests[i].parameter), host.bytes, owners[i]);
    put(host, ctx, requests[i], tensor);
  }
}

}  // namespace megatron
