// Requirements on every backend that moves bytes: reductions (in rank order bit for bit, if it promises that), order,
// overlap, records.
#include <gtest/gtest.h>

#include <thread>
#include <tuple>

#include "megatron/comm/parallel_layout.h"
#include "tests/comm/buffers.h"
#include "tests/comm/conformance/run_world.h"
#include "tests/comm/reduction_reference.h"

namespace megatron {
namespace {

using testing::for_each_type;
using testing::inputs_of;
using testing::RankContext;
using testing::reference;
using testing::run_world;
using testing::same_bits;
using testing::section_of;
using testing::values_of;
using testing::view_of;

constexpr int64_t kSizes[] = {0, 1, 5, 20011};

/// Checks the backend's promises for a reduction.
template <class T>
bool is_right(const std::vector<T>& actual, ReduceOp reduce, const std::vector<std::vector<T>>& inputs) {
  return testing::sums_in_rank_order() ? same_bits(actual, reference(reduce, inputs))
                                       : testing::is_reduction(actual, reduce, inputs);
}

/// `size` elements for each rank: an all_reduce of all of them, and a reduce_scatter that leaves one section each.
template <class T>
void expect_reductions(RankContext& context, ReduceOp reduce, int64_t size) {
  const auto inputs = inputs_of<T>(context.size, size * context.size);
  const auto& input = inputs[static_cast<size_t>(context.rank)];
  auto buffer = input;
  context.group.all_reduce(view_of(buffer), reduce, {"all_reduce"}).wait();
  EXPECT_TRUE(is_right(buffer, reduce, inputs))
      << name_of(dtype_of<T>()) << " " << name_of(reduce) << " of " << size << " on " << context.size;

  const int64_t own = size * context.rank;
  std::vector<std::vector<T>> sections;
  for (const auto& values : inputs) sections.push_back(section_of(values, own, size));
  buffer = input;
  std::vector<T> output(static_cast<size_t>(size));
  context.group.reduce_scatter(view_of(buffer), view_of(output), reduce, {"reduce_scatter"}).wait();
  EXPECT_TRUE(is_right(output, reduce, sections));
  EXPECT_TRUE(same_bits(buffer, input));
  context.group.reduce_scatter(view_of(buffer), view_of(buffer, own, size), reduce, {"in place"}).wait();
  EXPECT_TRUE(is_right(section_of(buffer, own, size), reduce, sections));
}

class GroupSizes : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GroupSizes, ::testing::Range(1, 9));

TEST_P(GroupSizes, ReductionsSumInRankOrderBitForBit) {
  run_world(GetParam(), [](RankContext& context) {
    for_each_type([&]<class T>() {
      for (ReduceOp reduce : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kAverage}) {
        if (std::is_integral_v<T> && reduce == ReduceOp::kAverage) continue;
        for (int64_t size : {0, 1, 5, 1027}) expect_reductions<T>(context, reduce, size);
      }
      expect_reductions<T>(context, ReduceOp::kSum, 40007);  // more than a piece
    });
  });
}

template <class T>
void expect_gather_and_broadcast(RankContext& context, int64_t size) {
  const int64_t own = size * context.rank;
  std::vector<T> expected;
  for (int rank = 0; rank < context.size; ++rank) {
    const auto values = values_of<T>(rank, size);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  auto input = values_of<T>(context.rank, size);
  std::vector<T> output(expected.size());
  context.group.all_gather(view_of(input), view_of(output), {"all_gather"}).wait();
  EXPECT_TRUE(same_bits(output, expected));
  output.assign(expected.size(), T());
  std::copy(input.begin(), input.end(), output.begin() + own);
  context.group.all_gather(view_of(output, own, size), view_of(output), {"in place"}).wait();
  EXPECT_TRUE(same_bits(output, expected));
  for (int root : {0, context.size - 1}) {
    auto buffer = values_of<T>(context.rank, size);
    context.group.broadcast(view_of(buffer), root, {"broadcast"}).wait();
    EXPECT_TRUE(same_bits(buffer, values_of<T>(root, size)));
  }
}

TEST_P(GroupSizes, GatherAndBroadcastMoveEveryDtype) {
  run_world(GetParam(), [](RankContext& context) {
    for_each_type([&]<class T>() {
      for (int64_t size : kSizes) expect_gather_and_broadcast<T>(context, size);
    });
  });
}

TEST_P(GroupSizes, GatherMovesDtypesWithoutArithmetic) {
  run_world(GetParam(), [](RankContext& context) {
    auto input = values_of<uint8_t>(context.rank, 9);
    std::vector<uint8_t> output(static_cast<size_t>(9 * context.size));
    View from = view_of(input), to = view_of(output);
    from.dtype = to.dtype = DType::kFloat8E4M3;
    context.group.all_gather(from, to, {"fp8"}).wait();
    for (int rank = 0; rank < context.size; ++rank)
      EXPECT_TRUE(same_bits(section_of(output, 9 * rank, 9), values_of<uint8_t>(rank, 9)));
  });
}

TEST_P(GroupSizes, AllToAllTransposesSections) {
  run_world(GetParam(), [](RankContext& context) {
    for (int64_t size : kSizes) {
      auto input = values_of<BFloat16>(context.rank, size * context.size);
      std::vector<BFloat16> output(input.size());
      context.group.all_to_all(view_of(input), view_of(output), {"all_to_all"}).wait();
      for (int from = 0; from < context.size; ++from) {
        const auto sent = values_of<BFloat16>(from, size * context.size);
        EXPECT_TRUE(same_bits(section_of(output, size * from, size), section_of(sent, size * context.rank, size)));
      }
    }
  });
}

/// Rows that `from` sends to `to`; some are none.
int64_t rows_between(int from, int to, int64_t test) {
  return static_cast<int64_t>(draw(RandomKey::from_seed(3).at(test), 0, from, to) % 4) * (test % 3 == 0 ? 1000 : 1);
}

TEST_P(GroupSizes, AllToAllMovesAnyNumberOfRows) {
  constexpr int64_t kWidth = 3;
  run_world(GetParam(), [](RankContext& context) {
    for (int64_t test = 0; test < 8; ++test) {
      std::vector<int64_t> send_rows, receive_rows;
      int64_t num_sent = 0, num_received = 0;
      for (int peer = 0; peer < context.size; ++peer) {
        num_sent += send_rows.emplace_back(rows_between(context.rank, peer, test));
        num_received += receive_rows.emplace_back(rows_between(peer, context.rank, test));
      }
      std::vector<int32_t> input(static_cast<size_t>(num_sent * kWidth)), expected,
          output(static_cast<size_t>(num_received * kWidth));
      size_t next = 0;
      for (int peer = 0; peer < context.size; ++peer)
        for (int64_t i = 0; i < send_rows[static_cast<size_t>(peer)] * kWidth; ++i)
          input[next++] = 100 * context.rank + peer;
      for (int peer = 0; peer < context.size; ++peer)
        expected.insert(expected.end(), static_cast<size_t>(receive_rows[static_cast<size_t>(peer)] * kWidth),
                        100 * peer + context.rank);
      context.group
          .all_to_all(view_of(input, {num_sent, kWidth}), view_of(output, {num_received, kWidth}), send_rows,
                      receive_rows, {"tokens"})
          .wait();
      EXPECT_EQ(output, expected);
    }
  });
}

TEST(World, NumbersMembersAsListed) {
  if (!testing::sums_in_rank_order()) GTEST_SKIP() << "the order of sums does not show the numbers";
  const std::vector<float> values{1e8f, 1, -1e8f, 1};  // 1 at once by rank, 2 when the large ones meet first
  run_world(4, [&](RankContext& context) {
    const auto sum_over = [&](std::vector<int> ranks) {
      std::vector<float> buffer{values[static_cast<size_t>(context.rank)]};
      context.world.split("order", {std::move(ranks)})->all_reduce(view_of(buffer), ReduceOp::kSum, {"x"}).wait();
      return buffer[0];
    };
    EXPECT_EQ(sum_over({0, 1, 2, 3}), 1.0f);
    EXPECT_EQ(sum_over({2, 0, 1, 3}), 2.0f);
  });
}

/// Sum over a group of the global ranks in it.
int sum_of_ranks(const ProcessGroup& group) {
  int sum = 0;
  for (int i = 0; i < group.size(); ++i) sum += group.global_rank(i);
  return sum;
}

TEST(World, GroupsWorkSideBySide) {
  const ParallelLayout layout({.world_size = 8,
                               .tensor_model_parallel_size = 2,
                               .pipeline_model_parallel_size = 2,
                               .expert_model_parallel_size = 2,
                               .expert_tensor_parallel_size = 1});
  run_world(8, [&](RankContext& context) {
    std::vector<ProcessGroup> groups{context.group};
    for (GroupKind kind : {GroupKind::kTp, GroupKind::kPp, GroupKind::kDp, GroupKind::kEp, GroupKind::kTpEpPp})
      groups.push_back(context.world.split(name_of(kind), layout.groups(kind)).value());
    for (int round = 0; round < 50; ++round) {
      std::vector<std::vector<int32_t>> buffers(groups.size(), {context.rank});
      std::vector<Work> works;
      for (size_t g = 0; g < groups.size(); ++g)
        works.push_back(groups[g].all_reduce(view_of(buffers[g]), ReduceOp::kSum, {"nested"}));
      for (size_t g = groups.size(); g-- > 0;) {
        works[g].wait();
        EXPECT_EQ(buffers[g][0], sum_of_ranks(groups[g]));
      }
    }
  });
}

TEST(World, OverlapDoesNotChangeBits) {
  constexpr int64_t kSize = 70001, kNumBuckets = 6;
  run_world(4, [](RankContext& context) {
    std::vector<std::vector<float>> plain, overlapped;
    for (int64_t bucket = 0; bucket < kNumBuckets; ++bucket) {
      plain.push_back(values_of<float>(context.rank, kSize, bucket));
      overlapped.push_back(plain.back());
    }
    for (auto& bucket : plain) context.group.all_reduce(view_of(bucket), ReduceOp::kAverage, {"plain"}).wait();
    std::vector<Work> works;
    for (auto& bucket : overlapped)
      works.push_back(context.group.all_reduce(view_of(bucket), ReduceOp::kAverage, {"overlapped"}));
    if (context.rank % 2 == 0)  // some wait from the last to the first
      for (size_t i = works.size(); i-- > 0;) works[i].wait();
    for (auto& work : works) work.wait();
    for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(plain[i], overlapped[i])) << i;
  });
}

TEST(World, CollectivesOfAGroupTakeEffectInTheOrderOfIssue) {
  constexpr int64_t kSection = 40000;
  run_world(4, [&](RankContext& context) {
    const int64_t own = kSection * context.rank;
    auto buffer = values_of<float>(context.rank, 4 * kSection);
    Work reduce = context.group.reduce_scatter(view_of(buffer), view_of(buffer, own, kSection), ReduceOp::kSum, {"rs"});
    Work gather = context.group.all_gather(view_of(buffer, own, kSection), view_of(buffer), {"ag"});
    Work small = context.group.all_reduce(view_of(buffer, 0, 1), ReduceOp::kMax, {"the same value everywhere"});
    context.world.split("other", {{0, 1, 2, 3}})->barrier({"all is issued"}).wait();
    if (context.rank != 2) small.wait();
    gather.wait();
    reduce.wait();
    small.wait();
    EXPECT_TRUE(is_right(buffer, ReduceOp::kSum, inputs_of<float>(4, 4 * kSection)));
  });
}

TEST(World, AWorkThatIsDroppedAfterAllEnteredCompletes) {
  run_world(3, [](RankContext& context) {
    auto buffer = values_of<float>(context.rank, 100000);
    Work work = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
    context.group.barrier({"all have entered"}).wait();
    if (context.rank == 1) work = Work();
    work.wait();
    EXPECT_TRUE(is_right(buffer, ReduceOp::kSum, inputs_of<float>(3, 100000)));
  });
}

TEST(World, RecordsEachOperationWithItsTimes) {
  run_world(2, [](RankContext& context) {
    std::vector<float> buffer(6);
    context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"first"}).wait();
    context.group.barrier({"second"}).wait();
    const auto records = context.world.recorder().since(0);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].to_string(), "all_reduce #0 \"first\" of world");
    EXPECT_EQ(records[0].bytes(), 24);
    EXPECT_EQ(records[1].to_string(), "barrier #1 \"second\" of world");
    for (const auto& record : records) {
      EXPECT_TRUE(record.has_ended());
      EXPECT_LE(record.enqueued, record.started);
      EXPECT_LE(record.started, record.ended);
    }
  });
}

TEST(World, SurvivesAThousandOperationsAtRandomTimes) {
  const RankLists halves{{0, 2, 4}, {1, 3, 5}}, pairs{{0, 1}, {2, 3}, {4, 5}};
  run_world(6, [&](RankContext& context) {
    const std::vector<ProcessGroup> groups{context.group,
                                           context.world.split("half", halves, {.by_copy_engine = true}).value(),
                                           context.world.split("pair", pairs).value()};
    const RandomKey common = RandomKey::from_seed(1), own = common.at(int64_t{context.rank});
    std::vector<std::tuple<Work, std::vector<int32_t>, int32_t>> pending(3);
    for (int64_t i = 0; i < 1000; ++i) {
      const ProcessGroup& group = groups[draw(common, i, 0, 0) % 3];
      const bool large = draw(common, i, 0, 1) % 50 == 0;
      auto& [work, buffer, expected] = pending[static_cast<size_t>(i) % pending.size()];
      work.wait();
      for (int32_t value : buffer) ASSERT_EQ(value, expected);
      buffer.assign(large ? 100000 : 3, static_cast<int32_t>(context.rank + i));
      expected = sum_of_ranks(group) + static_cast<int32_t>(i) * group.size();
      work = group.all_reduce(view_of(buffer), ReduceOp::kSum, {"stress"});
      if (draw(own, i, 0, 2) % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw(own, i, 0, 3) % 500));
    }
    for (auto& [work, buffer, expected] : pending) work.wait();
  });
}

}  // namespace
}  // namespace megatron
