#include "megatron/comm/nccl/peer_copies.h"

#include <algorithm>
#include <array>

#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/section_sum.h"

namespace megatron {
namespace {

static_assert(CopiedGroups::kMostRanks <= kMostSections);

constexpr size_t kFlagStride = 64, kSlotAlignment = 512;
static_assert(2 * CopiedGroups::kMostRanks * kFlagStride <= SharedPage::kBytes);
constexpr int kNumSlots = 8;  // from each rank
/// Beyond any value that is waited for.
constexpr uint32_t kFarAhead = uint32_t{1} << 30;

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

}  // namespace

PeerCopies::PeerCopies(std::unique_ptr<PeerMemory> memory)
    : memory_(std::move(memory)),
      slot_bytes_(static_cast<size_t>(CopiedGroups::kBytesPerRank) /
                  static_cast<size_t>(kNumSlots * (memory_->num_ranks() - 1)) / kSlotAlignment * kSlotAlignment),
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

CUdeviceptr PeerCopies::flag(int owner, Flag kind, int source) const {
  const size_t offset = static_cast<size_t>(kind * CopiedGroups::kMostRanks + source) * kFlagStride;
  return reinterpret_cast<CUdeviceptr>(memory_->page_of(owner).device() + offset);
}

void PeerCopies::set_flags(Flag kind, NcclLibrary::Stream stream) const {
  std::array<CUstreamBatchMemOpParams, CopiedGroups::kMostRanks> operations{};
  unsigned count = 0;
  for_each_peer([&](int peer) {
    auto& write = operations[count++].writeValue;
    write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write.address = flag(peer, kind, memory_->own());
    write.value = num_pieces_;
    write.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // after all that the stream has written
  });
  check_cuda(driver_.stream_batch_mem_op(stream, count, operations.data(), 0), "cuStreamBatchMemOp");
}

void PeerCopies::await_flags(Flag kind, uint32_t value, NcclLibrary::Stream stream) const {
  std::array<CUstreamBatchMemOpParams, CopiedGroups::kMostRanks> operations{};
  unsigned count = 0;
  for_each_peer([&](int peer) {
    auto& wait = operations[count++].waitValue;
    wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.address = flag(memory_->own(), kind, peer);
    wait.value = value;
    wait.flags = CU_STREAM_WAIT_VALUE_GEQ;
  });
  check_cuda(driver_.stream_batch_mem_op(stream, count, operations.data(), 0), "cuStreamBatchMemOp");
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
  uint32_t* flags = memory_->page_of(memory_->own()).host();
  for (size_t i = 0; i < SharedPage::kBytes / sizeof(uint32_t); ++i)
    std::atomic_ref(flags[i]).store(num_pieces_ + kFarAhead, std::memory_order_relaxed);
}

}  // namespace megatron
