#include "megatron/distributed/buffer_layout.h"

#include <gtest/gtest.h>

#include <numeric>

#include "megatron/core/random.h"

namespace megatron {
namespace {

/// Parameters of awkward sizes; each tenth is a shared embedding.
std::vector<BufferLayout::Entry> random_entries(uint64_t seed) {
  std::vector<BufferLayout::Entry> entries(static_cast<size_t>(1 + 12 * uniform(RandomKey::from_seed(seed), 0)));
  for (size_t i = 0; i < entries.size(); ++i) {
    const double size = uniform(RandomKey::from_seed(seed).at("size"), static_cast<int64_t>(i));
    entries[i] = {1 + static_cast<int64_t>(700 * size * size), (seed + i) % 10 == 0};
  }
  return entries;
}

TEST(BufferLayout, EachElementOfAParameterBelongsToExactlyOneRank) {
  for (uint64_t seed = 0; seed < 60; ++seed)
    for (const int64_t ranks : {1, 2, 3, 5, 8}) {
      const auto entries = random_entries(seed);
      const BufferLayout layout = BufferLayout::make(
          entries,
          {.use_distributed_optimizer = true, .data_parallel_size = ranks, .bucket_size = 100 + 50 * seed % 900});
      std::vector<int64_t> owned(entries.size());
      for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
        EXPECT_EQ(layout.buckets[bucket].range.size() % ranks, 0);
        EXPECT_EQ(layout.shard(bucket, ranks - 1).end, layout.buckets[bucket].range.end);
        for (int64_t rank = 0; rank < ranks; ++rank)
          for (const BufferLayout::Piece& piece : layout.pieces(bucket, rank)) {
            EXPECT_EQ(layout.slots[piece.entry].bucket, bucket);
            EXPECT_EQ(piece.in_parameter.begin, owned[piece.entry]) << "in order, without gaps and overlaps";
            owned[piece.entry] = piece.in_parameter.end;
          }
      }
      for (size_t i = 0; i < entries.size(); ++i) EXPECT_EQ(owned[i], entries[i].num_elements);
    }
}

TEST(BufferLayout, HasNoGapsWithoutADistributedOptimizer) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto entries = random_entries(seed);
    int64_t sum = 0;
    for (const auto& entry : entries) sum += entry.num_elements;
    const BufferLayout layout = BufferLayout::make(entries, {.data_parallel_size = 3, .bucket_size = 300});
    EXPECT_EQ(layout.num_elements(), sum);
    EXPECT_EQ(layout.num_unpadded(), sum);
    EXPECT_EQ(layout.slots.front().range.end, sum) << "the first one registered lies last";
  }
}

TEST(BufferLayout, ASharedEmbeddingLiesInTheSameWayWhateverIsBesideIt) {
  const BufferLayoutOptions options{.use_distributed_optimizer = true, .data_parallel_size = 3, .bucket_size = 500};
  const BufferLayout first = BufferLayout::make(std::vector<BufferLayout::Entry>{{700, true}, {333}, {65}}, options);
  const BufferLayout last = BufferLayout::make(std::vector<BufferLayout::Entry>{{80}, {31}, {700, true}}, options);
  const auto shape_of = [](const BufferLayout& layout, size_t entry) {
    std::vector<ElementRange> shape;
    for (int64_t rank = 0; rank < 3; ++rank)
      for (const auto& piece : layout.pieces(layout.slots[entry].bucket, rank)) shape.push_back(piece.in_parameter);
    return shape;
  };
  EXPECT_EQ(first.buckets[first.slots[0].bucket].entries.size(), 1U);
  EXPECT_EQ(last.buckets[last.slots[2].bucket].entries.size(), 1U);
  EXPECT_EQ(shape_of(first, 0), shape_of(last, 2));
}

TEST(BufferLayout, NothingNeedsNoBucket) {
  const BufferLayout layout = BufferLayout::make({}, {.use_distributed_optimizer = true, .data_parallel_size = 2});
  EXPECT_TRUE(layout.buckets.empty());
  EXPECT_EQ(layout.num_elements(), 0);
}

}  // namespace
}  // namespace megatron
