#include "megatron/comm/nccl/peer_messages.h"

#include <algorithm>

#include "megatron/comm/nccl/cuda_check.h"

namespace megatron {
namespace {

constexpr int kSender = 0, kReceiver = 1;
constexpr uint32_t kNumMessageSlots = CopiedGroups::kMessageSlots;

}  // namespace

PeerMessages::PeerMessages(std::unique_ptr<PeerMemory> memory)
    : memory_(std::move(memory)), slot_bytes_(memory_->bytes_of(kReceiver) / kNumMessageSlots) {}

template <class F>
void PeerMessages::transfer(size_t bytes, NcclLibrary::Stream stream, F&& copy) {
  const int own = memory_->own(), other = own == kSender ? kReceiver : kSender;
  for (size_t offset = 0; offset < bytes; offset += slot_bytes_) {
    const uint32_t number = ++num_pieces_;
    StreamFlagOperations before, after;
    before.await({memory_->page_of(own)}, own == kSender ? number - kNumMessageSlots : number);
    before.submit(driver_, stream);
    copy(offset, memory_->of(kReceiver) + number % kNumMessageSlots * slot_bytes_,
         std::min(slot_bytes_, bytes - offset));
    after.set({memory_->page_of(other)}, number);
    after.submit(driver_, stream);
  }
}

void PeerMessages::send(const void* input, size_t bytes, NcclLibrary::Stream stream) {
  transfer(bytes, stream, [&](size_t offset, std::byte* slot, size_t piece) {
    check_cuda_call(
        cudaMemcpyAsync(slot, static_cast<const std::byte*>(input) + offset, piece, cudaMemcpyDefault, stream),
        "cudaMemcpyAsync");
  });
}

void PeerMessages::receive(void* output, size_t bytes, NcclLibrary::Stream stream) {
  transfer(bytes, stream, [&](size_t offset, const std::byte* slot, size_t piece) {
    check_cuda_call(cudaMemcpyAsync(static_cast<std::byte*>(output) + offset, slot, piece, cudaMemcpyDefault, stream),
                    "cudaMemcpyAsync");
  });
}

void PeerMessages::release() noexcept {
  memory_->leave();
  release_flags(memory_->page_of(memory_->own()), num_pieces_);
}

}  // namespace megatron
