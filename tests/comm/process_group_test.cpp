#include "megatron/comm/process_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/comm/meta/meta_world.h"
#include "tests/comm/buffers.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::same_bits;
using ::testing::ThrowsMessage;
using testing::values_of;
using testing::view_of;

/// The front of rank 1 of 4 over a backend that does nothing.
class FrontTest : public ::testing::Test {
 protected:
  MetaWorld world{1, 4};
  ProcessGroup group = world.split("tp", {{0, 1, 2, 3}}).value();
  std::vector<float> eight = std::vector<float>(8), two = std::vector<float>(2), three = std::vector<float>(3);
  std::vector<BFloat16> half = std::vector<BFloat16>(2);
};

template <class E, class F>
void expect_refused(F&& call, const std::string& text) {
  EXPECT_THAT([&] { call().wait(); }, ThrowsMessage<E>(HasSubstr(text)));
}

TEST_F(FrontTest, KnowsTheGroup) {
  const ProcessGroup pair = world.split("pair", {{3, 1}, {0, 2}}).value();
  EXPECT_EQ(pair.size(), 2);
  EXPECT_EQ(pair.rank(), 1);
  EXPECT_EQ(pair.global_rank(0), 3);
  EXPECT_EQ(pair.name(), "pair");
  EXPECT_FALSE(world.split("others", {{0, 2}}).has_value());
}

TEST_F(FrontTest, RejectsSizesThatDoNotDivide) {
  expect_refused<ShapeError>(
      [&] { return group.reduce_scatter(view_of(eight), view_of(three), ReduceOp::kSum, {"x"}); },
      "[reduce_scatter on tp] 8 elements [8] are not 4 sections, one for each rank, of 3 elements");
  expect_refused<ShapeError>([&] { return group.all_gather(view_of(three), view_of(eight), {"x"}); },
                             "[all_gather on tp] 8 elements");
  expect_refused<ShapeError>([&] { return group.all_to_all(view_of(two), view_of(two), {"x"}); }, "do not divide by 4");
  expect_refused<ShapeError>([&] { return group.all_to_all(view_of(eight), view_of(two), {"x"}); }, "output 2");
}

TEST_F(FrontTest, RejectsViewsThatAreNotContiguous) {
  View transposed = view_of(eight, {2, 4});
  transposed.strides = {1, 2};
  expect_refused<ShapeError>([&] { return group.all_reduce(transposed, ReduceOp::kSum, {"x"}); },
                             "[all_reduce on tp] buffer [2, 4] with strides [1, 2] is not contiguous");
  expect_refused<ShapeError>([&] { return group.send(transposed, 0, 0, {"x"}); }, "is not contiguous");
}

TEST_F(FrontTest, RejectsUnsupportedDtypes) {
  expect_refused<DtypeError>([&] { return group.all_gather(view_of(half), view_of(eight), {"x"}); },
                             "input is bfloat16 and output float32");
  std::vector<int32_t> integers(4);
  expect_refused<DtypeError>([&] { return group.all_reduce(view_of(integers), ReduceOp::kAverage, {"x"}); },
                             "the average of int32 is not defined");
  View eighth = view_of(eight);
  eighth.dtype = DType::kFloat8E5M2;
  expect_refused<DtypeError>([&] { return group.all_reduce(eighth, ReduceOp::kSum, {"x"}); }, "cannot be reduced");
}

TEST_F(FrontTest, AllowsOverlapOnlyInTheOwnSection) {
  group.reduce_scatter(view_of(eight), view_of(eight, 2, 2), ReduceOp::kSum, {"x"}).wait();
  group.all_gather(view_of(eight, 2, 2), view_of(eight), {"x"}).wait();
  expect_refused<ShapeError>(
      [&] { return group.reduce_scatter(view_of(eight), view_of(eight, 0, 2), ReduceOp::kSum, {"x"}); },
      "overlap elsewhere");
  expect_refused<ShapeError>([&] { return group.all_gather(view_of(eight, 4, 2), view_of(eight), {"x"}); }, "overlap");
  expect_refused<ShapeError>([&] { return group.all_to_all(view_of(eight), view_of(eight), {"x"}); }, "overlap");
}

TEST_F(FrontTest, RejectsBadRowCounts) {
  std::vector<float> other(8);
  const View rows = view_of(eight, {4, 2}), out = view_of(other, {4, 2});
  const std::vector<int64_t> good{1, 1, 2, 0}, three_counts{1, 1, 2}, five{2, 1, 2, 0}, negative{3, 1, -1, 1},
      own_differs{1, 2, 1, 0};
  group.all_to_all(rows, out, good, good, {"x"}).wait();
  expect_refused<ShapeError>([&] { return group.all_to_all(rows, out, three_counts, good, {"x"}); }, "3 row counts");
  expect_refused<ShapeError>([&] { return group.all_to_all(rows, out, good, five, {"x"}); }, "add up to 5");
  expect_refused<ShapeError>([&] { return group.all_to_all(rows, out, negative, good, {"x"}); }, "is -1");
  expect_refused<ShapeError>([&] { return group.all_to_all(rows, out, good, own_differs, {"x"}); }, "to itself");
}

TEST_F(FrontTest, RejectsRanksOutsideTheGroupAndItself) {
  expect_refused<ConfigError>([&] { return group.broadcast(view_of(two), 4, {"x"}); }, "rank 4 is not in the group");
  expect_refused<ConfigError>([&] { return group.send(view_of(two), -1, 0, {"x"}); }, "[send on tp] rank -1");
  expect_refused<ConfigError>([&] { return group.recv(view_of(two), 1, 0, {"x"}); }, "is this rank itself");
}

TEST_F(FrontTest, NumbersAndRecordsAcceptedOperations) {
  group.all_reduce(view_of(eight), ReduceOp::kSum, {.site = "grad bucket 7"}).wait();
  EXPECT_THROW(group.all_gather(view_of(three), view_of(eight), {"x"}).wait(), ShapeError);
  group.reduce_scatter(view_of(eight), view_of(two), ReduceOp::kSum, {"y"}).wait();
  group.send(view_of(half), 3, 0, {"z"}).wait();
  group.broadcast(view_of(three), 2, {""}).wait();
  const auto records = world.recorder().since(0);
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].to_string(), "all_reduce #0 \"grad bucket 7\" of tp");
  EXPECT_EQ(records[0].bytes(), 32);
  EXPECT_EQ(records[1].to_string(), "reduce_scatter #1 \"y\" of tp");
  EXPECT_EQ(records[1].num_elements, 8);
  EXPECT_EQ(records[2].to_string(), "send #0 \"z\" of tp");
  EXPECT_EQ(records[2].dtype, DType::kBFloat16);
  EXPECT_EQ(records[2].peer, 3);
  EXPECT_EQ(records[3].to_string(), "broadcast #2 of tp");
  EXPECT_EQ(records[3].peer, 2);
}

TEST(SingleGroup, MakesCollectivesCopies) {
  const ProcessGroup group;
  EXPECT_EQ(group.size(), 1);
  EXPECT_EQ(group.rank(), 0);
  EXPECT_EQ(group.name(), "single");
  const auto source = values_of<float>(0, 6);
  auto buffer = source;
  std::vector<float> output(6);
  const std::vector<int64_t> rows{6};

  group.all_reduce(view_of(buffer), ReduceOp::kAverage, {"x"}).wait();
  group.broadcast(view_of(buffer), 0, {"x"}).wait();
  group.barrier({"x"}).wait();
  EXPECT_TRUE(same_bits(buffer, source));
  group.reduce_scatter(view_of(buffer), view_of(output), ReduceOp::kSum, {"x"}).wait();
  EXPECT_TRUE(same_bits(output, source));
  output.assign(6, 0);
  group.all_gather(view_of(buffer), view_of(output), {"x"}).wait();
  EXPECT_TRUE(same_bits(output, source));
  output.assign(6, 0);
  group.all_to_all(view_of(buffer), view_of(output), {"x"}).wait();
  EXPECT_TRUE(same_bits(output, source));
  output.assign(6, 0);
  group.all_to_all(view_of(buffer), view_of(output), rows, rows, {"x"}).wait();
  EXPECT_TRUE(same_bits(output, source));
  group.all_gather(view_of(buffer), view_of(buffer), {"x"}).wait();
  EXPECT_TRUE(same_bits(buffer, source));
  group.batch({}, {"x"}).wait();
  group.abort("nobody hears this");
}

TEST(SingleGroup, ChecksLikeAnyGroup) {
  std::vector<float> six(6), five(5);
  expect_refused<ShapeError>([&] { return ProcessGroup().all_gather(view_of(five), view_of(six), {"x"}); },
                             "[all_gather on single]");
}

TEST(World, RejectsListsThatAreNotGroups) {
  MetaWorld world(0, 4);
  EXPECT_THAT(
      [&] {
        world.split("dp", {{0, 4}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("[split dp] rank 4 is not in the world of 4 ranks")));
  EXPECT_THAT(
      [&] {
        world.split("dp", {{0, 1}, {1, 2}});
      },
      ThrowsMessage<ConfigError>(HasSubstr("rank 1 is listed twice")));
  EXPECT_THROW(MetaWorld(4, 4), ConfigError);
}

TEST(World, SetsTheTimeoutOfAllItsGroups) {
  MetaWorld world(0, 2);
  const ProcessGroup before = world.split("a", {{0, 1}}).value();
  world.set_timeout(std::chrono::milliseconds(1234));
  const ProcessGroup after = world.split("b", {{0, 1}}).value();
  EXPECT_EQ(before.timeout(), std::chrono::milliseconds(1234));
  EXPECT_EQ(after.timeout(), std::chrono::milliseconds(1234));
  after.set_timeout(std::chrono::seconds(1));
  EXPECT_EQ(before.timeout(), std::chrono::milliseconds(1234));
  EXPECT_EQ(after.timeout(), std::chrono::seconds(1));
}

TEST(DescribeRanks, BoundsTheTextForAnyNumberOfRanks) {
  EXPECT_EQ(describe_ranks({3}), "rank 3");
  EXPECT_EQ(describe_ranks({0, 1, 2}), "ranks 0, 1, 2");
  std::vector<int> many, odd;
  for (int rank = 13; rank < 128; ++rank) many.push_back(rank);
  EXPECT_EQ(describe_ranks(many), "115 ranks (13-127)");
  many.insert(many.begin(), 2);
  EXPECT_EQ(describe_ranks(many), "116 ranks (2, 13-127)");
  for (int rank = 1; rank < 1000; rank += 2) odd.push_back(rank);
  EXPECT_EQ(describe_ranks(odd), "500 ranks (1, 3, 5, 7, 9, 11, 13, 15, ...)");
}

}  // namespace
}  // namespace megatron
