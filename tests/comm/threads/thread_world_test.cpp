#include "megatron/comm/threads/thread_world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/comm/reduction_reference.h"
#include "tests/testing/rank_threads.h"

namespace megatron {
namespace {

using testing::inputs_of;
using testing::RankContext;
using testing::reference;
using testing::run_ranks;
using testing::same_bits;
using testing::values_of;
using testing::view_of;

TEST(ThreadWorld, BarrierEndsWhenAllHaveEntered) {
  std::atomic<int> num_entered{0};
  run_ranks(5, [&](RankContext& context) {
    std::this_thread::sleep_for(std::chrono::milliseconds(context.rank));
    ++num_entered;
    context.group.barrier({"barrier"}).wait();
    EXPECT_EQ(num_entered, context.size);
  });
}

TEST(ThreadWorld, SendIsDoneWhenTheReceiverHasTheData) {
  std::atomic<bool> has_posted{false};
  run_ranks(2, [&](RankContext& context) {
    std::vector<float> buffer(3, static_cast<float>(context.rank));
    if (context.rank == 0) {
      context.group.send(view_of(buffer), 1, 0, {"x"}).wait();
      EXPECT_TRUE(has_posted);
      buffer.assign(3, 77);  // belongs to the sender again
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      has_posted = true;
      context.group.recv(view_of(buffer), 0, 0, {"x"}).wait();
      EXPECT_EQ(buffer, std::vector<float>(3, 0.0f));
    }
  });
}

TEST(ThreadWorld, AnOperationEndsAlthoughSomeRanksDoNotWaitForIt) {
  std::atomic<bool> others_are_done{false};
  run_ranks(3, [&](RankContext& context) {
    auto buffer = values_of<float>(context.rank, 100000);
    Work work = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
    const ProcessGroup pair = context.world.split("pair", {{0, 1}, {2}}).value();
    if (context.rank < 2) {
      work.wait();
      pair.barrier({"both have it"}).wait();
      others_are_done = true;
    } else {
      while (!others_are_done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      work.wait();
    }
    EXPECT_TRUE(same_bits(buffer, reference(ReduceOp::kSum, inputs_of<float>(3, 100000))));
  });
}

TEST(ThreadWorld, AnOperationEndsAlthoughTheOthersWaitOnlyForALaterOne) {
  std::atomic<int> num_done{0};
  run_ranks(3, [&](RankContext& context) {
    auto first = values_of<float>(context.rank, 100000);
    std::vector<float> second(1, 1.0f);
    Work large = context.group.all_reduce(view_of(first), ReduceOp::kSum, {"first"});
    Work small = context.group.all_reduce(view_of(second), ReduceOp::kSum, {"second"});
    if (context.rank < 2) {
      small.wait();
      ++num_done;
    } else {
      while (num_done < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      small.wait();
    }
    large.wait();
    EXPECT_EQ(second[0], 3.0f);
    EXPECT_TRUE(same_bits(first, reference(ReduceOp::kSum, inputs_of<float>(3, 100000))));
  });
}

TEST(ThreadWorld, WorldsInOneProcessShareNothing) {
  std::thread other([] {
    run_ranks(3, [](RankContext& context) {
      for (int i = 0; i < 100; ++i) {
        std::vector<int32_t> buffer{1};
        context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"}).wait();
        EXPECT_EQ(buffer[0], 3);
      }
    });
  });
  EXPECT_THROW(run_ranks(2, [](RankContext&) { throw std::runtime_error("x"); }), RankFailure);
  other.join();
}

TEST(ThreadWorld, RejectsRanksThatDoNotExist) {
  EXPECT_THROW(ThreadWorld(0, std::chrono::seconds(1)), ConfigError);
  ThreadWorld ranks(2, std::chrono::seconds(1));
  EXPECT_THROW(ranks.join(2), ConfigError);
  const auto first = ranks.join(0);
  EXPECT_THROW(ranks.join(0), ConfigError);
}

}  // namespace
}  // namespace megatron
