#include "megatron/core/arena.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "megatron/base/error.h"
#include "megatron/core/host_memory.h"
#include "megatron/core/random.h"
#include "megatron/core/storage.h"

namespace megatron {
namespace {

/// `num` random requests and returns; @return the offsets that were given out.
std::vector<int64_t> random_requests(Arena& arena, int num) {
  std::vector<int64_t> offsets;
  std::vector<Arena::Block> live;
  const RandomKey key = RandomKey::from_seed(3);
  for (int i = 0; i < num; ++i) {
    const uint32_t choice = draw(key, 0, i, 0);
    if (!live.empty() && choice % 3 == 0) {
      const size_t index = draw(key, 0, i, 1) % live.size();
      arena.release("x", live[index]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
    } else {
      const auto use = static_cast<MemoryUse>(draw(key, 0, i, 2) % kNumMemoryUses);
      live.push_back(arena.allocate("x", draw(key, 0, i, 3) % 5000, use));
      offsets.push_back(live.back().offset);
    }
  }
  for (const Arena::Block& block : live) arena.release("x", block);
  return offsets;
}

TEST(Arena, AddressesLogAndPeaksAreTheSameWithoutMemory) {
  Arena real({.capacity_bytes = 1 << 24, .record_events = true}, std::make_unique<HostMemory>());
  Arena meta({.capacity_bytes = 1 << 24, .record_events = true}, nullptr);
  EXPECT_EQ(random_requests(real, 2000), random_requests(meta, 2000));
  EXPECT_EQ(real.events(), meta.events());
  EXPECT_EQ(real.total().peak, meta.total().peak);
  EXPECT_EQ(real.high_water_bytes(), meta.high_water_bytes());
  EXPECT_EQ(real.table(), meta.table());
}

TEST(Arena, CountsTheBlocksThatAreOut) {
  Arena arena({.capacity_bytes = 1 << 20}, nullptr);
  const Arena::Block weight = arena.allocate("weight", 100, MemoryUse::kWeights);
  const Arena::Block empty = arena.allocate("empty", 0, MemoryUse::kActivations);
  EXPECT_EQ(arena.num_live_blocks(), 2);
  EXPECT_THROW(arena.allocate("too large", 1 << 21, MemoryUse::kActivations), OutOfMemory);
  EXPECT_EQ(arena.num_live_blocks(), 2);
  arena.release("weight", weight);
  arena.release("empty", empty);
  EXPECT_EQ(arena.num_live_blocks(), 0);
}

TEST(Arena, LiveBlocksDoNotOverlapAndAreAligned) {
  Arena arena({.capacity_bytes = 1 << 20}, nullptr);
  std::map<int64_t, Arena::Block> live;  // by offset; all in one segment
  const RandomKey key = RandomKey::from_seed(4);
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 40) {
      auto victim = std::next(live.begin(), draw(key, 0, i, 0) % 40);
      arena.release("x", victim->second);
      live.erase(victim);
    }
    const Arena::Block block = arena.allocate("x", draw(key, 0, i, 1) % 3000, MemoryUse::kActivations);
    ASSERT_EQ(block.offset % OffsetAllocator::kAlignment, 0);
    const auto next = live.lower_bound(block.offset);
    if (next != live.end()) {
      ASSERT_LE(block.offset + std::max<int64_t>(block.bytes, 1), next->first);
    }
    if (next != live.begin()) {
      const Arena::Block& previous = std::prev(next)->second;
      ASSERT_LE(previous.offset + std::max<int64_t>(previous.bytes, 1), block.offset);
    }
    live.emplace(block.offset, block);
  }
  for (const auto& [offset, block] : live) arena.release("x", block);
  EXPECT_EQ(arena.total().live, 0);
  const Arena::Block all = arena.allocate("all", 1 << 20, MemoryUse::kActivations);  // the ranges have merged again
  EXPECT_EQ(all.offset, 0);
}

TEST(Arena, SharesItsCapacityAmongTheSegments) {
  Arena arena({.capacity_bytes = 1000 * 64}, nullptr);
  const Storage weights(arena, "w", 600 * 64, MemoryUse::kWeights);
  EXPECT_THROW(arena.allocate("a", 500 * 64, MemoryUse::kActivations), OutOfMemory);
  EXPECT_NO_THROW(arena.release("a", arena.allocate("a", 400 * 64, MemoryUse::kActivations)));
}

TEST(Arena, AdvisesWhatMakesTheKindThatIsTooLargeSmaller) {
  const auto advice = [](MemoryUse use) -> std::string {
    Arena arena({.capacity_bytes = 1 << 20}, nullptr);
    try {
      arena.allocate("x", 1 << 21, use);
    } catch (const OutOfMemory& error) {
      const std::string text = error.what();
      return text.substr(text.find("To need less"));
    }
    return "";
  };
  for (const MemoryUse use : {MemoryUse::kWeights, MemoryUse::kGradients, MemoryUse::kOptimizer}) {
    EXPECT_NE(advice(use).find("--pipeline-model-parallel-size"), std::string::npos);
    EXPECT_EQ(advice(use).find("--recompute"), std::string::npos);
    EXPECT_EQ(advice(use).find("--micro-batch-size"), std::string::npos);
    // It cuts the optimizer's state and nothing else.
    EXPECT_EQ(advice(use).find("--use-distributed-optimizer") != std::string::npos, use == MemoryUse::kOptimizer);
  }
  EXPECT_NE(advice(MemoryUse::kActivations).find("smaller --micro-batch-size"), std::string::npos);
}

TEST(Arena, PoisonsNewBlocks) {
  Arena arena({.capacity_bytes = 1 << 20, .poison = true}, std::make_unique<HostMemory>());
  const Storage block(arena, "x", 80, MemoryUse::kData);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(std::isnan(reinterpret_cast<const double*>(block.data())[i]));
}

TEST(Storage, GoesBackWithItsLastHandle) {
  Arena arena({.capacity_bytes = 1 << 20}, nullptr);
  Storage first(arena, "x", 100, MemoryUse::kData);
  {
    const Storage second = first;
    EXPECT_TRUE(first.is_shared());
    first = {};
    EXPECT_EQ(arena.total().live, 100);
    EXPECT_FALSE(second.is_shared());
  }
  EXPECT_EQ(arena.total().live, 0);
}

}  // namespace
}  // namespace megatron
