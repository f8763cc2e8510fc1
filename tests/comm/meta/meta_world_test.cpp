#include "megatron/comm/meta/meta_world.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

View meta_view(int64_t size) { return {nullptr, DType::kBFloat16, {size}, {1}, nullptr}; }

TEST(MetaWorld, RecordsTheVolumeOfAnyRankAndMovesNothing) {
  MetaWorld world(777, 1024);
  RankLists tp;
  for (int first = 0; first < 1024; first += 8)
    tp.push_back({first, first + 1, first + 2, first + 3, first + 4, first + 5, first + 6, first + 7});
  const ProcessGroup group = world.split("tp", tp).value();
  EXPECT_EQ(group.size(), 8);
  EXPECT_EQ(group.rank(), 1);
  group.reduce_scatter(meta_view(80), meta_view(10), ReduceOp::kSum, {"x"}).wait();
  group.all_gather(meta_view(10), meta_view(80), {"x"}).wait();
  const PointToPoint exchange[] = {send_to(0, meta_view(5), 0), receive_from(2, meta_view(7), 0)};
  group.batch(exchange, {"x"}).wait();
  int64_t bytes = 0;
  for (const auto& record : world.recorder().since(0)) bytes += record.bytes();
  EXPECT_EQ(bytes, 2 * (80 + 10 + 5 + 7));
}

TEST(MetaWorld, RecordsHowManyOperationsOfEachKindAGroupHasAndTheirBytes) {
  MetaWorld world(0, 2);
  const ProcessGroup ep = world.split("ep", {{0, 1}}, {.pairwise = true}).value();
  const ProcessGroup tp = world.split("tp", {{0, 1}}, {.by_copy_engine = true}).value();
  tp.all_gather(meta_view(10), meta_view(20), {"x"}).wait();
  tp.all_gather(meta_view(4), meta_view(8), {"x"}).wait();
  tp.all_reduce(meta_view(3), ReduceOp::kSum, {"x"}).wait();
  const int64_t sent[] = {5, 1}, received[] = {5, 9};
  ep.all_to_all(meta_view(6), meta_view(14), sent, received, {"x"}).wait();
  const Connections& connections = world.connections();
  const ConnectionUse &rows = connections.at({.group = "tp"}), &pairs = connections.at({.group = "ep"});
  EXPECT_EQ(rows.operations.at(CommOp::kAllGather).num_operations, 2);
  EXPECT_EQ(rows.operations.at(CommOp::kAllGather).bytes, 2 * (20 + 8));
  EXPECT_EQ(rows.operations.at(CommOp::kAllReduce).bytes, 2 * 3);
  EXPECT_EQ(rows.largest, 2 * 10);
  EXPECT_TRUE(rows.copies_rows());
  EXPECT_FALSE(rows.connects_pairs());
  EXPECT_EQ(pairs.operations.at(CommOp::kAllToAll).bytes, 2 * 14);
  EXPECT_TRUE(pairs.connects_pairs()) << "an all-to-all needs a connection between each two ranks";
  EXPECT_EQ(pairs.traits, GroupTraits{.pairwise = true});
}

TEST(MetaWorld, CopiesNothingInAGroupOfOne) {
  MetaWorld world(0, 2);
  const ProcessGroup self = world.split("cp", {{0}, {1}}).value();
  self.all_gather(meta_view(10), meta_view(10), {"x"}).wait();
}

TEST(MetaWorld, KeepsBuffersUntilTheWaitLikeARealRun) {
  MetaWorld world(0, 2);
  const ProcessGroup pair = world.split("tp", {{0, 1}}).value();
  auto owner = std::make_shared<int>(1);
  Work work = pair.all_reduce(meta_view(10), ReduceOp::kSum, {.site = "x", .keep_alive = KeepAlive::of(owner)});
  EXPECT_EQ(owner.use_count(), 2);
  work.wait();
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace megatron
