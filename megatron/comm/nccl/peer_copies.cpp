#include "megatron/comm/nccl/peer_copies.h"

#include <algorithm>
#include <limits>

#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/section_sum.h"

namespace megatron {
namespace {

static_assert(CopiedGroups::kMostRanks <= kMostSections);

constexpr int kNumSlots = CopiedGroups::kRowSlots;  // from each rank
static_assert(CopiedGroups::kMostRanks * kNumSlots <= StreamFlag::kNumInPage);
/// Piece n is sent at the earliest when n - kMostAhead has been used. Then n - kMostAhead of the others has arrived, so
/// they have used n - 2 kMostAhead, whose slot n takes.
constexpr int64_t kMostAhead = kNumSlots / 2;
constexpr uint32_t kFilled = 1, kTaken = 0;

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

bool is_recording(NcclLibrary::Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda_call(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void follow(NcclLibrary::Stream follower, NcclLibrary::Stream leader, cudaEvent_t event) {
  check_cuda_call(cudaEventRecord(event, leader), "cudaEventRecord");
  check_cuda_call(cudaStreamWaitEvent(follower, event), "cudaStreamWaitEvent");
}

/// All ranks send pieces of the same size.
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

/// Begins with the next rank, so that no two ranks send to the same one at once.
template <class F>
void PeerCopies::for_each_peer(F&& f) const {
  const int size = memory_->num_ranks();
  for (int i = 1; i < size; ++i) f((memory_->own() + i) % size);
}

std::byte* PeerCopies::slot(int owner, int source, int number) const {
  const int size = memory_->num_ranks(), row = (source - owner + size) % size - 1;
  return memory_->of(owner) + static_cast<size_t>(row * kNumSlots + number) * slot_bytes_;
}

StreamFlag PeerCopies::flag(int owner, int source, int number) const {
  return {memory_->page_of(owner), source * kNumSlots + number};
}

void PeerCopies::await(int number, NcclLibrary::Stream stream) const {
  StreamFlagOperations operations;
  const int own = memory_->own();
  for_each_peer([&](int peer) { operations.await(flag(own, peer, number), kFilled); });
  for_each_peer([&](int peer) { operations.set(flag(own, peer, number), kTaken); });
  operations.submit(driver_, stream);
}

void PeerCopies::send(const Piece& piece, const std::function<const std::byte*(int)>& source) {
  const int own = memory_->own();
  StreamFlagOperations operations;
  for_each_peer([&](int peer) {
    copy(slot(peer, own, piece.slot), source(peer) + piece.offset, piece.bytes, sending_);
    operations.set(flag(peer, own, piece.slot), kFilled);
  });
  operations.submit(driver_, sending_);
}

void PeerCopies::transfer(size_t bytes, NcclLibrary::Stream stream, const std::function<const std::byte*(int)>& source,
                          const std::function<void(const Piece&)>& use) {
  const bool is_chain = is_recording(stream);
  int64_t number = 0;
  for (size_t offset = 0; offset < bytes; offset += slot_bytes_, ++number) {
    const Piece piece{offset, std::min(slot_bytes_, bytes - offset), static_cast<int>(num_pieces_++ % kNumSlots)};
    if (number > 0 && (is_chain || number % kMostAhead == 0)) follow(sending_, stream, begin_);
    send(piece, source);
    if (is_chain) follow(stream, sending_, sent_);
    await(piece.slot, stream);
    use(piece);
  }
  follow(stream, sending_, sent_);  // then the input may be reused
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
  release_flags(memory_->page_of(memory_->own()), kFilled);
}

}  // namespace megatron
