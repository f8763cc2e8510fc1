#include "megatron/core/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/core/random_boxes.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(TilingProblem, AcceptsEveryWayOfCutting) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const Shape shape{4, 7, 6};
    EXPECT_EQ(tiling_problem(shape, random_tiling(Box::whole(shape), trial % 30, random)), std::nullopt);
  }
}

TEST(TilingProblem, FindsEveryMissingRepeatedOrShiftedBox) {
  std::mt19937 random(2);
  const Shape shape{4, 7, 6};
  for (int trial = 0; trial < 100; ++trial) {
    const auto boxes = random_tiling(Box::whole(shape), 12, random);
    for (size_t i = 0; i < boxes.size(); ++i) {
      if (boxes[i].is_empty()) continue;
      auto missing = boxes, repeated = boxes, shifted = boxes;
      missing.erase(missing.begin() + static_cast<ptrdiff_t>(i));
      repeated.push_back(boxes[i]);
      shifted[i].offsets[1] += 1;
      EXPECT_THAT(tiling_problem(shape, missing), Optional(HasSubstr("of 168 elements")));
      EXPECT_THAT(tiling_problem(shape, repeated), Optional(HasSubstr("overlap")));
      EXPECT_TRUE(tiling_problem(shape, shifted).has_value());
    }
  }
}

TEST(TilingProblem, KnowsScalarsAndEmptyTensors) {
  const Box scalar{{}, {}};
  EXPECT_EQ(tiling_problem({}, std::vector{scalar}), std::nullopt);
  EXPECT_TRUE(tiling_problem({}, {}).has_value());
  EXPECT_TRUE(tiling_problem({}, std::vector{scalar, scalar}).has_value());
  EXPECT_EQ(tiling_problem({0, 4}, {}), std::nullopt);
  EXPECT_EQ(tiling_problem({0, 4}, std::vector{Box{{0, 0}, {0, 4}}}), std::nullopt);
}

/// Row-major positions of a box's elements within the whole tensor.
std::vector<int64_t> elements_of(const Box& box, const Shape& strides) {
  std::vector<int64_t> elements;
  const int64_t first = element_offset(box.offsets, strides);
  for_each_run(box.sizes, strides, strides, [&](int64_t a, int64_t, int64_t count) {
    for (int64_t i = 0; i < count; ++i) elements.push_back(first + a + i);
  });
  return elements;
}

TEST(BoxesOfFlatRange, HoldTheRangesElementsInOrder) {
  const Shape whole{5, 6, 7};
  const Box box{{1, 2, 3}, {3, 4, 3}};
  const auto all = elements_of(box, whole.contiguous_strides());
  for (int64_t begin = 0; begin <= box.sizes.num_elements(); ++begin)
    for (int64_t end = begin; end <= box.sizes.num_elements(); ++end) {
      const auto boxes = boxes_of_flat_range(box, begin, end);
      EXPECT_LE(boxes.size(), 5u);
      std::vector<int64_t> elements;
      for (const Box& part : boxes) {
        const auto some = elements_of(part, whole.contiguous_strides());
        elements.insert(elements.end(), some.begin(), some.end());
      }
      EXPECT_EQ(elements, std::vector(all.begin() + begin, all.begin() + end)) << begin << " to " << end;
    }
}

TEST(BoxesOfFlatRange, HandlesScalarsAndRefusesWhatIsOutside) {
  EXPECT_EQ(boxes_of_flat_range(Box{{}, {}}, 0, 1).size(), 1u);
  EXPECT_EQ(boxes_of_flat_range(Box{{}, {}}, 0, 0).size(), 0u);
  EXPECT_EQ(boxes_of_flat_range(Box{{0, 0}, {0, 3}}, 0, 0).size(), 0u);
  EXPECT_THROW(boxes_of_flat_range(Box{{0}, {4}}, 2, 5), ShapeError);
}

TEST(ForEachRun, MergesWhatIsContiguousInBoth) {
  const auto runs = [](const Shape& sizes, const Shape& a, const Shape& b) {
    std::vector<std::array<int64_t, 3>> found;
    for_each_run(sizes, a, b, [&](int64_t x, int64_t y, int64_t n) { found.push_back({x, y, n}); });
    return found;
  };
  using Runs = std::vector<std::array<int64_t, 3>>;
  EXPECT_EQ(runs({2, 3, 4}, {12, 4, 1}, {12, 4, 1}), (Runs{{0, 0, 24}}));
  EXPECT_EQ(runs({2, 3, 4}, {12, 4, 1}, {100, 4, 1}), (Runs{{0, 0, 12}, {12, 100, 12}}));
  EXPECT_EQ(runs({2, 2}, {2, 1}, {1, 2}), (Runs{{0, 0, 1}, {1, 2, 1}, {2, 1, 1}, {3, 3, 1}}));
  EXPECT_EQ(runs({1, 3}, {77, 1}, {99, 1}), (Runs{{0, 0, 3}}));
  EXPECT_EQ(runs({}, {}, {}), (Runs{{0, 0, 1}}));
  EXPECT_EQ(runs({2, 0}, {1, 1}, {1, 1}), Runs{});
}

TEST(Box, ContainsAndIntersectsWithoutOverflow) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_FALSE(contains({4}, {{kHuge}, {kHuge}}));
  EXPECT_FALSE(contains({4}, {{-1}, {2}}));
  EXPECT_FALSE(contains({4}, {{0, 0}, {1, 1}}));
  EXPECT_TRUE(contains({4}, {{4}, {0}}));
  EXPECT_EQ(intersection({{0, 0}, {4, 4}}, {{2, 3}, {4, 4}}), (Box{{2, 3}, {2, 1}}));
  EXPECT_EQ(intersection({{0}, {2}}, {{2}, {2}}), std::nullopt);
}

}  // namespace
}  // namespace megatron
