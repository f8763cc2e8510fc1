#include <gtest/gtest.h>

#include "tests/comm/buffers.h"
#include "tests/comm/conformance/run_world.h"

namespace megatron {
namespace {

using testing::RankContext;
using testing::run_world;
using testing::same_bits;
using testing::values_of;
using testing::view_of;

TEST(PointToPoint, MovesOneMessage) {
  run_world(3, [](RankContext& context) {
    for (int64_t size : {0, 1, 7, 100000}) {
      if (context.rank == 0) {
        auto input = values_of<BFloat16>(0, size);
        context.group.send(view_of(input), 2, 5, {"activation"}).wait();
      } else if (context.rank == 2) {
        std::vector<BFloat16> output(static_cast<size_t>(size));
        context.group.recv(view_of(output), 0, 5, {"activation"}).wait();
        EXPECT_TRUE(same_bits(output, values_of<BFloat16>(0, size)));
      }
    }
  });
}

TEST(PointToPoint, MessagesOfOneTagKeepTheirOrder) {
  run_world(2, [](RankContext& context) {
    std::vector<std::vector<float>> buffers;
    std::vector<Work> works;
    for (int i = 0; i < 20; ++i)
      buffers.push_back(context.rank == 0 ? values_of<float>(0, 3, i) : std::vector<float>(3));
    for (auto& buffer : buffers)
      works.push_back(context.rank == 0 ? context.group.send(view_of(buffer), 1, 0, {"x"})
                                        : context.group.recv(view_of(buffer), 0, 0, {"x"}));
    for (size_t i = works.size(); i-- > 0;) works[i].wait();
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(same_bits(buffers[static_cast<size_t>(i)], values_of<float>(0, 3, i)));
  });
}

/// More data than any backend buffers, of sizes that do not divide into blocks.
TEST(PointToPoint, ManyMessagesInFlightInBothDirectionsArriveInOrder) {
  constexpr int kNumMessages = 60;
  const auto size = [](int i) { return std::vector<int64_t>{1, 4099, 0, 129, 100003}[static_cast<size_t>(i % 5)]; };
  run_world(2, [&](RankContext& context) {
    const int peer = 1 - context.rank;
    std::vector<std::vector<float>> sent, received;
    std::vector<Work> works;
    for (int i = 0; i < kNumMessages; ++i) {
      sent.push_back(values_of<float>(context.rank, size(i), i));
      received.emplace_back(static_cast<size_t>(size(i)));
    }
    for (int i = 0; i < kNumMessages; ++i)
      works.push_back(context.group.send(view_of(sent[static_cast<size_t>(i)]), peer, 7, {"there"}));
    for (int i = 0; i < kNumMessages; ++i)
      works.push_back(context.group.recv(view_of(received[static_cast<size_t>(i)]), peer, 7, {"back"}));
    for (Work& work : works) work.wait();
    for (int i = 0; i < kNumMessages; ++i)
      EXPECT_TRUE(same_bits(received[static_cast<size_t>(i)], values_of<float>(peer, size(i), i))) << i;
  });
}

TEST(PointToPoint, TagsAreIndependent) {
  run_world(2, [](RankContext& context) {
    auto forward = values_of<float>(0, 4, 0), backward = values_of<float>(0, 6, 1);
    if (context.rank == 0) {
      Work first = context.group.send(view_of(forward), 1, 0, {"forward"});
      Work second = context.group.send(view_of(backward), 1, 1, {"backward"});
      first.wait();
      second.wait();
    } else {
      std::vector<float> later(4), sooner(6);
      context.group.recv(view_of(sooner), 0, 1, {"backward"}).wait();
      context.group.recv(view_of(later), 0, 0, {"forward"}).wait();
      EXPECT_TRUE(same_bits(sooner, backward));
      EXPECT_TRUE(same_bits(later, forward));
    }
  });
}

TEST(PointToPoint, ABatchExchangesInBothDirections) {
  for (int num_ranks = 2; num_ranks <= 8; ++num_ranks)
    run_world(num_ranks, [](RankContext& context) {
      const int next = (context.rank + 1) % context.size, previous = (context.rank + context.size - 1) % context.size;
      auto held = values_of<float>(context.rank, 1000);
      std::vector<float> received(held.size());
      for (int step = 1; step < context.size; ++step) {  // a ring: after each step the block of one rank further back
        const PointToPoint exchange[] = {send_to(next, view_of(held), 0), receive_from(previous, view_of(received), 0)};
        context.group.batch(exchange, {"ring"}).wait();
        std::swap(held, received);
        const int origin = (context.rank + context.size - step) % context.size;
        EXPECT_TRUE(same_bits(held, values_of<float>(origin, 1000)));
      }
    });
}

TEST(PointToPoint, IsIndependentOfCollectivesOfTheGroup) {
  run_world(2, [](RankContext& context) {
    std::vector<int32_t> message{context.rank}, sum{1};
    if (context.rank == 0) {
      Work send = context.group.send(view_of(message), 1, 0, {"x"});
      context.group.all_reduce(view_of(sum), ReduceOp::kSum, {"x"}).wait();
      send.wait();
    } else {
      context.group.all_reduce(view_of(sum), ReduceOp::kSum, {"x"}).wait();
      context.group.recv(view_of(message), 0, 0, {"x"}).wait();
      EXPECT_EQ(message[0], 0);
    }
    EXPECT_EQ(sum[0], 2);
  });
}

TEST(PointToPoint, PipelineOfManyMicroBatchesArrivesInOrder) {
  constexpr int kNumMicroBatches = 200;
  run_world(4, [](RankContext& context) {
    std::vector<Work> sends(kNumMicroBatches);
    std::vector<std::vector<int32_t>> buffers(kNumMicroBatches, std::vector<int32_t>(5));
    for (int32_t i = 0; i < kNumMicroBatches; ++i) {
      auto& buffer = buffers[static_cast<size_t>(i)];
      if (context.rank == 0)
        buffer.assign(5, i);
      else
        context.group.recv(view_of(buffer), context.rank - 1, 0, {"forward"}).wait();
      ASSERT_EQ(buffer, std::vector<int32_t>(5, i + context.rank));
      for (int32_t& value : buffer) ++value;
      if (context.rank < 3)
        sends[static_cast<size_t>(i)] = context.group.send(view_of(buffer), context.rank + 1, 0, {"forward"});
    }
    for (Work& work : sends) work.wait();
  });
}

}  // namespace
}  // namespace megatron
