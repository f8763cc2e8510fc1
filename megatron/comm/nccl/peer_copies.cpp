#include "megatron/comm/nccl/peer_copies.h"

#include <algorithm>
#include <limits>

#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/section_sum.h"

namespace megatron {
namespace {

static_assert(CopiedGroups::kMostRanks <= kMostSections);

static_assert(2 * CopiedGroups::kMostRanks <= StreamFlag::kNumInPage);
constexpr int kNumSlots = CopiedGroups::kRowSlots;  // from each rank

void copy(std::byte* to, const std::byte* from, size_t bytes, NcclLibrary::Stream stream) {
  check_cuda_call(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
}

NcclLibrary::Stream open_stream() {
  int lowest = 0, highest = 0;
  NcclLibrary::Stream stream = nullptr;
  check_cuda_call(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  check_cuda_call(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, highest), "cudaStreamCreate");
  return stream;
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check_cuda_call(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

void follow(NcclLibrary::Stream follower, NcclLibrary::Stream leader, cudaEvent_t event) {
  check_cuda_call(cudaEventRecord(event, leader), "cudaEventRecord");
  check_cuda_call(cudaStreamWaitEvent(follower, event), "cudaStreamWaitEvent");
}

/// All ranks send pieces of one size.
size_t slot_bytes_of(const PeerMemory& memory) {
  size_t bytes = std::numeric_limits<size_t>::max();
  for (int place = 0; place < memory.num_ranks(); ++place) bytes = std::min(bytes, memory.bytes_of(place));
  return bytes / static_cast<size_t>(kNumSlots * (memory.num_ranks() - 1));
}

}  // namespace

PeerCopies::PeerCopies(std::unique_ptr<PeerMemory> memory)
    : memory_(std::move(memory)),
      slot_bytes_(slot_bytes_of(*memory_)),
      sending_(open_stream()),
      begin_(make_event()),
      sent_(make_event()) {
  load_section_sums();
}

PeerCopies::~PeerCopies() {
  cudaStreamDestroy(sending_);
  for (cudaEvent_t event : {begin_, sent_}) cudaEventDestroy(event);
}

/// Beginning with the next one: no two ranks send to one at a time.
template <class F>
void PeerCopies::for_each_peer(F&& f) const {
  const int size = memory_->num_ranks();
  for (int i = 1; i < size; ++i) f((memory_->own() + i) % size);
}

std::byte* PeerCopies::slot(int owner, int source, int number) const {
  const int size = memory_->num_ranks(), row = (source - owner + size) % size - 1;
  return memory_->of(owner) + static_cast<size_t>(row * kNumSlots + number) * slot_bytes_;
}

StreamFlag PeerCopies::flag(int owner, Flag kind, int source) const {
  return {memory_->page_of(owner), kind * CopiedGroups::kMostRanks + source};
}

void PeerCopies::set_flags(Flag kind, NcclLibrary::Stream stream) const {
  StreamFlagOperations operations;
  for_each_peer([&](int peer) { operations.set(flag(peer, kind, memory_->own()), num_pieces_); });
  operations.submit(driver_, stream);
}

void PeerCopies::await_flags(Flag kind, uint32_t value, NcclLibrary::Stream stream) const {
  StreamFlagOperations operations;
  for_each_peer([&](int peer) { operations.await(flag(memory_->own(), kind, peer), value); });
  operations.submit(driver_, stream);
}

void PeerCopies::send(const Piece& piece, const std::function<const std::byte*(int)>& source) {
  await_flags(kFreed, num_pieces_ - kNumSlots, sending_);
  for_each_peer([&](int peer) {
    copy(slot(peer, memory_->own(), piece.slot), source(peer) + piece.offset, piece.bytes, sending_);
  });
  set_flags(kFilled, sending_);
}

void PeerCopies::transfer(size_t bytes, NcclLibrary::Stream stream, const std::function<const std::byte*(int)>& source,
                          const std::function<void(const Piece&)>& use) {
  for (size_t offset = 0; offset < bytes; offset += slot_bytes_) {
    const uint32_t number = ++num_pieces_;
    const Piece piece{offset, std::min(slot_bytes_, bytes - offset), static_cast<int>(number % kNumSlots)};
    send(piece, source);
    await_flags(kFilled, number, stream);
    use(piece);
    set_flags(kFreed, stream);
  }
  follow(stream, sending_, sent_);  // the input is free then
}

void PeerCopies::all_gather(const void* input, void* output, size_t bytes, NcclLibrary::Stream stream) {
  const auto* from = static_cast<const std::byte*>(input);
  auto* to = static_cast<std::byte*>(output);
  const int own = memory_->own();
  follow(sending_, stream, begin_);
  if (std::byte* own_section = to + static_cast<size_t>(own) * bytes; own_section != from && bytes > 0)
    copy(own_section, from, bytes, stream);
  transfer(
      bytes, stream, [&](int) { return from; },
      [&](const Piece& piece) {
        for_each_peer([&](int peer) {
          copy(to + static_cast<size_t>(peer) * bytes + piece.offset, slot(own, peer, piece.slot), piece.bytes, stream);
        });
      });
}

void PeerCopies::reduce_scatter(const void* input, void* output, size_t count, DType dtype,
                                NcclLibrary::Stream stream) {
  const size_t element = static_cast<size_t>(size_of(dtype)), bytes = count * element;
  const auto section = [&](int place) {
    return static_cast<const std::byte*>(input) + static_cast<size_t>(place) * bytes;
  };
  const int own = memory_->own(), size = memory_->num_ranks();
  follow(sending_, stream, begin_);
  transfer(bytes, stream, section, [&](const Piece& piece) {
    SectionSum args{.num_sections = size,
                    .sum = static_cast<std::byte*>(output) + piece.offset,
                    .num_elements = static_cast<int64_t>(piece.bytes / element),
                    .dtype = dtype};
    for (int place = 0; place < size; ++place)
      args.sections[static_cast<size_t>(place)] =
          place == own ? section(own) + piece.offset : slot(own, place, piece.slot);
    sum_sections(args, stream);
  });
}

void PeerCopies::release() noexcept {
  memory_->leave();
  release_flags(memory_->page_of(memory_->own()), num_pieces_);
}

}  // namespace megatron
