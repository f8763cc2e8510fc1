#include "megatron/core/arena.h"

#include <algorithm>
#include <functional>

#include "megatron/base/error.h"
#include "megatron/core/host_memory.h"

namespace megatron {
namespace {
/// Checkers are told of this much above the highest block; to mark all of the address space would take seconds.
constexpr int64_t kGuardBytes = 64 << 10;

/// Flags in quotes are taken as they stand. What is there before a micro-batch comes does not depend on its size.
std::string_view remedies_of(MemoryUse use) {
  switch (use) {
    case MemoryUse::kWeights:
      return "'--bf16' where it is not given, or more --tensor-model-parallel-size or --pipeline-model-parallel-size. "
             "A smaller micro-batch does not help.";
    case MemoryUse::kGradients:
      return "gradients in bf16 ('--bf16 --use-precision-aware-optimizer --main-grads-dtype bf16'), or more "
             "--tensor-model-parallel-size or --pipeline-model-parallel-size. A smaller micro-batch does not help.";
    case MemoryUse::kOptimizer:
      return "moments in bf16 ('--bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16'), "
             "no main parameters either ('--bf16 --use-precision-aware-optimizer --main-params-dtype bf16 "
             "--main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16'), "
             "'--use-distributed-optimizer' on several replicas, or more --tensor-model-parallel-size or "
             "--pipeline-model-parallel-size. A smaller micro-batch does not help.";
    default:
      return "a smaller --micro-batch-size, "
             "'--recompute-granularity full --recompute-method uniform --recompute-num-layers 1', or more "
             "--tensor-model-parallel-size or --pipeline-model-parallel-size.";
  }
}
}  // namespace

std::string_view name_of(MemoryUse use) {
  constexpr std::array<std::string_view, kNumMemoryUses> kNames = {
      "weights", "gradients", "optimizer", "communication", "activations", "workspace", "data"};
  return kNames[static_cast<size_t>(use)];
}

Arena::Arena(const Options& options, std::unique_ptr<ArenaMemory> memory)
    : options_(options), memory_(std::move(memory)) {
  if (options_.capacity_bytes == 0)
    options_.capacity_bytes = memory_ ? memory_->capacity_bytes() : HostMemory().capacity_bytes();
  for (size_t s = 0; s < kNumMemorySegments; ++s) {
    segments_[s] = OffsetAllocator(options_.capacity_bytes);
    if (memory_) bases_[s] = memory_->reserve(options_.capacity_bytes);
  }
}

Arena::~Arena() {
  for (size_t s = 0; s < kNumMemorySegments; ++s) {
    if (!bases_[s]) continue;
    memory_->permit(bases_[s], std::min(segments_[s].high_water_bytes() + kGuardBytes, options_.capacity_bytes));
    memory_->release(bases_[s], options_.capacity_bytes);
  }
}

Arena::Block Arena::allocate(std::string_view name, int64_t bytes, MemoryUse use) {
  require<ShapeError>(bytes >= 0, "[Arena] '{}' asks for {} bytes: a size is negative.", name, bytes);
  const auto s = static_cast<size_t>(segment_of(use));
  int64_t live = 0;
  for (const OffsetAllocator& segment : segments_) live += segment.live_bytes();
  const bool fits = live + OffsetAllocator::rounded(bytes) <= options_.capacity_bytes;
  auto offset = fits ? segments_[s].allocate(bytes) : std::nullopt;
  if (offset && bases_[s] && !memory_->back(bases_[s], *offset + OffsetAllocator::rounded(bytes))) {
    segments_[s].release(*offset, bytes);
    offset.reset();
  }
  if (!offset)  // not by require(), which would have the table written for each allocation
    throw OutOfMemory(
        fmt::format("[Arena] '{}' ({}) needs {} bytes and there is no such room in {} bytes.\n{}\nTo need less: {}",
                    name, name_of(use), bytes, options_.capacity_bytes, table(), remedies_of(use)));
  Amount& amount = amounts_[static_cast<size_t>(use)];
  for (Amount* a : {&amount, &total_}) a->peak = std::max(a->peak, a->live += bytes);
  ++num_live_blocks_;
  if (options_.record_events) events_.push_back({std::string(name), bytes});
  std::byte* data = bases_[s] ? bases_[s] + *offset : nullptr;
  if (data) {
    const bool is_top = *offset + OffsetAllocator::rounded(bytes) == segments_[s].high_water_bytes();
    if (is_top) memory_->forbid(data, std::min(bytes + kGuardBytes, options_.capacity_bytes - *offset));
    memory_->permit(data, bytes);
    if (options_.poison) {
      const ArenaAccess access(*this);
      memory_->fill(data, 0xFF, bytes);
    }
  }
  return {use, *offset, bytes, data};
}

void Arena::release(std::string_view name, const Block& block) {
  segments_[static_cast<size_t>(segment_of(block.use))].release(block.offset, block.bytes);
  amounts_[static_cast<size_t>(block.use)].live -= block.bytes;
  total_.live -= block.bytes;
  --num_live_blocks_;
  if (options_.record_events) events_.push_back({std::string(name), -block.bytes});
  if (block.data) memory_->forbid(block.data, block.bytes);
}

bool Arena::holds(const void* data) const {
  const auto* byte = static_cast<const std::byte*>(data);
  return std::ranges::any_of(bases_, [&](const std::byte* base) {
    return base && !std::less<>()(byte, base) && std::less<>()(byte, base + options_.capacity_bytes);
  });
}

int64_t Arena::high_water_bytes(MemorySegment segment) const {
  return segments_[static_cast<size_t>(segment)].high_water_bytes();
}
int64_t Arena::high_water_bytes() const {
  int64_t sum = 0;
  for (const OffsetAllocator& segment : segments_) sum += segment.high_water_bytes();
  return sum;
}

std::string Arena::table() const {
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::string text = fmt::format("{:<16}{:>14}{:>14}\n", "memory (MiB)", "now", "peak");
  for (int use = 0; use < kNumMemoryUses; ++use) {
    const Amount& a = amounts_[static_cast<size_t>(use)];
    text += fmt::format("{:<16}{:>14.2f}{:>14.2f}\n", name_of(static_cast<MemoryUse>(use)), mib(a.live), mib(a.peak));
  }
  text += fmt::format("{:<16}{:>14.2f}{:>14.2f}\n", "all", mib(total_.live), mib(total_.peak));
  return text + fmt::format("{:<16}{:>14.2f}{:>14.2f}", "free", mib(options_.capacity_bytes - total_.live),
                            mib(options_.capacity_bytes - total_.peak));
}

}  // namespace megatron
