// Properties of ranks that are processes.
#include "megatron/comm/mpi/mpi_world.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/comm/conformance/run_world.h"
#include "tests/comm/reduction_reference.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::for_each_type;
using testing::inputs_of;
using testing::RankContext;
using testing::run_ranks;
using testing::run_world;
using testing::same_bits;
using testing::values_of;
using testing::view_of;

/// The sums of ranks as threads for the same inputs, here all in this process.
template <class T>
std::vector<T> sum_of_threads(int num_ranks, int64_t size) {
  std::vector<T> result;
  run_ranks(num_ranks, [&](RankContext& context) {
    auto buffer = values_of<T>(context.rank, size);
    context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"threads"}).wait();
    if (context.rank == 0) result = buffer;
  });
  return result;
}

TEST(MpiWorld, SumsHaveTheBitsOfRanksAsThreads) {
  for (int num_ranks : {2, 3, 5, 8})
    run_world(num_ranks, [&](RankContext& context) {
      for_each_type([&]<class T>() {
        // One is sent with the handshake, one in sections, one in several pieces of 1 MiB.
        for (int64_t size : {7, 10007, 2500007}) {
          if (size > 1000000 && (num_ranks != 3 || dtype_of<T>() != DType::kFloat32)) continue;
          auto buffer = values_of<T>(context.rank, size);
          context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"processes"}).wait();
          EXPECT_TRUE(same_bits(buffer, sum_of_threads<T>(num_ranks, size))) << name_of(dtype_of<T>()) << " " << size;
        }
      });
    });
}

TEST(MpiWorld, ReduceScatterInPiecesHasTheSameBits) {
  constexpr int64_t kSection = 300007;  // 1.1 MiB
  run_world(3, [](RankContext& context) {
    auto buffer = values_of<float>(context.rank, 3 * kSection);
    const auto expected = testing::reference(ReduceOp::kAverage, inputs_of<float>(3, 3 * kSection));
    const int64_t own = kSection * context.rank;
    context.group.reduce_scatter(view_of(buffer), view_of(buffer, own, kSection), ReduceOp::kAverage, {"x"}).wait();
    EXPECT_TRUE(same_bits(testing::section_of(buffer, own, kSection), testing::section_of(expected, own, kSection)));
  });
}

TEST(MpiWorld, AnOperationEndsAlthoughOneRankComputes) {
  run_world(3, [](RankContext& context) {
    auto buffer = values_of<float>(context.rank, 100000);
    context.group.barrier({"start"}).wait();
    const auto begin = std::chrono::steady_clock::now();
    Work work = context.group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
    if (context.rank == 2) std::this_thread::sleep_for(milliseconds(4000));
    work.wait();
    const auto longest = milliseconds(context.rank < 2 ? 3500 : 60000);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, longest);
    EXPECT_TRUE(same_bits(buffer, testing::reference(ReduceOp::kSum, inputs_of<float>(3, 100000))));
  });
}

TEST(MpiWorld, SendIsDoneWhenTheReceiverHasTheData) {
  for (int64_t size : {3, 100000})
    run_world(2, [&](RankContext& context) {
      std::vector<float> buffer(static_cast<size_t>(size), static_cast<float>(context.rank));
      context.group.barrier({"start"}).wait();
      const auto begin = std::chrono::steady_clock::now();
      if (context.rank == 0) {
        context.group.send(view_of(buffer), 1, 0, {"x"}).wait();
        EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(90));
        buffer.assign(buffer.size(), 77);  // belongs to the sender again
      } else {
        std::this_thread::sleep_for(milliseconds(100));
        context.group.recv(view_of(buffer), 0, 0, {"x"}).wait();
        EXPECT_EQ(buffer, std::vector<float>(buffer.size(), 0.0f));
      }
    });
}

TEST(MpiWorld, RejectsTagsOutOfRange) {
  run_world(2, [](RankContext& context) {
    std::vector<float> buffer(1);
    const int peer = 1 - context.rank;
    EXPECT_THROW(auto work = context.group.send(view_of(buffer), peer, 4095, {"x"}), ConfigError);
    EXPECT_THROW(auto work = context.group.recv(view_of(buffer), peer, -1, {"x"}), ConfigError);
  });
}

}  // namespace
}  // namespace megatron
