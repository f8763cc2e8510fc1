// Properties of ranks on GPUs: streams, device memory, and host memory beside it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/core/cuda_device.h"
#include "tests/comm/conformance/run_world.h"
#include "tests/comm/nccl/device_buffer.h"
#include "tests/comm/nccl/nccl_job.h"
#include "tests/comm/reduction_reference.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using testing::DeviceBuffer;
using testing::inputs_of;
using testing::RankContext;
using testing::reference;
using testing::run_world;
using testing::same_bits;
using testing::values_of;
using testing::view_of;

TEST(NcclWorld, CollectivesOnDeviceMemoryHaveTheReferencesBits) {
  constexpr int64_t kSection = 20011;
  run_world(2, [](RankContext& context) {
    const int64_t own = kSection * context.rank;
    testing::for_each_type([&]<class T>() {
      const auto inputs = inputs_of<T>(2, 2 * kSection);
      const auto expected = reference(ReduceOp::kSum, inputs);
      const DeviceBuffer<T> buffer(inputs[static_cast<size_t>(context.rank)]);
      context.group.reduce_scatter(buffer.view(), buffer.view(own, kSection), ReduceOp::kSum, {"rs"}).wait();
      context.group.all_gather(buffer.view(own, kSection), buffer.view(), {"ag"}).block();
      EXPECT_TRUE(same_bits(buffer.values(), expected)) << name_of(dtype_of<T>());
      const DeviceBuffer<T> whole(inputs[static_cast<size_t>(context.rank)]);
      context.group.all_reduce(whole.view(), ReduceOp::kMax, {"max"}).block();
      EXPECT_TRUE(same_bits(whole.values(), reference(ReduceOp::kMax, inputs)));
      const DeviceBuffer<T> from(inputs[static_cast<size_t>(context.rank)]), to(inputs[0]);
      context.group.all_to_all(from.view(), to.view(), {"tokens"}).block();
      for (int64_t peer : {0, 1})
        EXPECT_TRUE(same_bits(testing::section_of(to.values(), peer * kSection, kSection),
                              testing::section_of(inputs[static_cast<size_t>(peer)], own, kSection)));
    });
  });
}

/// Larger than a slot of PeerCopies, and of a size that is not divisible by a pack of elements.
TEST(NcclWorld, LargeSectionsHaveTheReferencesBits) {
  constexpr int64_t kSection = (26 << 19) + 3;
  run_world(2, [](RankContext& context) {
    const int64_t own = kSection * context.rank;
    std::vector<std::vector<BFloat16>> inputs(2, std::vector<BFloat16>(2 * kSection));
    for (size_t rank = 0; rank < 2; ++rank)
      for (size_t i = 0; i < inputs[rank].size(); ++i)
        inputs[rank][i] = BFloat16(static_cast<float>((i * 7919 + rank * 104729) % 65537) / 997);
    const DeviceBuffer<BFloat16> buffer(inputs[static_cast<size_t>(context.rank)]);
    context.group.reduce_scatter(buffer.view(), buffer.view(own, kSection), ReduceOp::kSum, {"rs"}).wait();
    context.group.all_gather(buffer.view(own, kSection), buffer.view(), {"ag"}).block();
    EXPECT_TRUE(same_bits(buffer.values(), reference(ReduceOp::kSum, inputs)));
  });
}

TEST(NcclWorld, ConsecutiveOperationsTakeEffectInOrderWhicheverRankIsLate) {
  constexpr int64_t kSection = 4097, kRounds = 40;
  run_world(2, [](RankContext& context) {
    const int64_t own = kSection * context.rank;
    std::vector<float> values(2 * kSection), expected(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 101 + static_cast<size_t>(context.rank));
      expected[i] = std::ldexp(static_cast<float>(2 * (i % 101) + 1), kRounds - 1);
    }
    const DeviceBuffer<float> buffer(values), apart(std::vector<float>(static_cast<size_t>(kSection)));
    Work last;
    for (int64_t round = 0; round < kRounds; ++round) {
      if (round % 20 == 10 * context.rank) std::this_thread::sleep_for(milliseconds(20));
      context.group.reduce_scatter(buffer.view(), apart.view(), ReduceOp::kSum, {"rs"}).wait();
      last = context.group.all_gather(apart.view(), buffer.view(), {"ag"});
      if (round + 1 < kRounds) last.wait();
    }
    last.block();
    EXPECT_TRUE(same_bits(buffer.values(), expected));
    EXPECT_TRUE(same_bits(apart.values(), testing::section_of(expected, own, kSection)));
  });
}

TEST(NcclWorld, WaitBlocksTheComputeStreamAndNotTheHost) {
  run_world(2, [](RankContext& context) {
    const DeviceBuffer<float> buffer(values_of<float>(context.rank, 1000));
    context.group.barrier({"start"}).wait();
    if (context.rank == 1) std::this_thread::sleep_for(milliseconds(500));
    const auto begin = std::chrono::steady_clock::now();
    context.group.all_reduce(buffer.view(), ReduceOp::kSum, {"x"}).wait();
    const auto longest = milliseconds(context.rank == 0 ? 250 : 5000);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, longest);
    // This comes after the operation on the compute stream, on which the next one waits.
    context.group.all_reduce(buffer.view(), ReduceOp::kAverage, {"y"}).block();
    EXPECT_TRUE(same_bits(buffer.values(), reference(ReduceOp::kSum, inputs_of<float>(2, 1000))));
  });
}

TEST(NcclWorld, CollectivesOfAGroupTakeEffectInTheOrderOfIssueOnHostMemoryToo) {
  constexpr int64_t kSection = 40000;
  run_world(2, [](RankContext& context) {
    const int64_t own = kSection * context.rank;
    auto buffer = values_of<float>(context.rank, 2 * kSection);
    Work reduce = context.group.reduce_scatter(view_of(buffer), view_of(buffer, own, kSection), ReduceOp::kSum, {"rs"});
    Work gather = context.group.all_gather(view_of(buffer, own, kSection), view_of(buffer), {"ag"});
    gather.wait();
    reduce.wait();
    EXPECT_TRUE(same_bits(buffer, reference(ReduceOp::kSum, inputs_of<float>(2, 2 * kSection))));
  });
}

TEST(NcclWorld, GroupsDoNotWaitForEachOther) {
  run_world(2, [](RankContext& context) {
    const ProcessGroup first = context.world.split("a", {{0, 1}}).value();
    const ProcessGroup second = context.world.split("b", {{1, 0}}).value();
    const DeviceBuffer<int32_t> a({context.rank}), b({context.rank + 10});
    for (int round = 0; round < 20; ++round) {
      Work one, two;
      const auto reduce_a = [&] { one = first.all_reduce(a.view(), ReduceOp::kMax, {"a"}); };
      if (context.rank == 0) reduce_a();
      two = second.all_reduce(b.view(), ReduceOp::kMax, {"b"});
      if (context.rank == 1) reduce_a();
      two.block();
      one.block();
    }
    EXPECT_EQ(a.values()[0], 1);
    EXPECT_EQ(b.values()[0], 11);
  });
}

TEST(NcclWorld, BothDirectionsMayBeSentBeforeEitherIsReceived) {
  run_world(2, [](RankContext& context) {
    const int peer = 1 - context.rank;
    const DeviceBuffer<float> sent(values_of<float>(context.rank, 3000000)), received(std::vector<float>(3000000));
    Work send = context.group.send(sent.view(), peer, 0, {"x"});
    context.group.recv(received.view(), peer, 0, {"x"}).block();
    send.block();
    EXPECT_TRUE(same_bits(received.values(), values_of<float>(peer, 3000000)));
  });
}

/// Sends more pieces than PeerMessages has slots, the last of an odd size.
TEST(NcclWorld, LargeMessagesInBothDirectionsArriveWhole) {
  constexpr int64_t kSize = (19 << 20) + 1;
  run_world(2, [](RankContext& context) {
    const int peer = 1 - context.rank;
    const auto values = [](int rank) {
      std::vector<BFloat16> result(kSize);
      for (size_t i = 0; i < result.size(); ++i)
        result[i] = BFloat16(static_cast<float>((i * 7919 + static_cast<size_t>(rank) * 104729) % 65537));
      return result;
    };
    const DeviceBuffer<BFloat16> sent(values(context.rank)), received(std::vector<BFloat16>{values(context.rank)});
    const std::array exchange = {receive_from(peer, received.view(), 0), send_to(peer, std::as_const(sent).view(), 0)};
    context.group.batch(exchange, {"x"}).block();
    EXPECT_TRUE(same_bits(received.values(), values(peer)));
  });
}

/// Sends as a pipeline does: each message is made on the other rank from the one before it.
TEST(NcclWorld, ManyMessagesInBothDirectionsKeepTheirOrderWhicheverRankIsLate) {
  constexpr int64_t kSize = 4097;
  constexpr int kRounds = 60;
  run_world(2, [](RankContext& context) {
    const int peer = 1 - context.rank;
    const bool is_first = context.rank == 0;
    const std::vector<float> start = values_of<float>(7, kSize);
    const DeviceBuffer<float> buffer(is_first ? start : std::vector<float>(kSize));
    for (int round = 0; round < kRounds; ++round) {
      if (round % 20 == 10 * context.rank) std::this_thread::sleep_for(milliseconds(20));
      const auto there = [&] { context.group.send(buffer.view(), peer, is_first ? 0 : 1, {"there"}).wait(); };
      const auto back = [&] { context.group.recv(buffer.view(), peer, is_first ? 1 : 0, {"back"}).wait(); };
      is_first ? there() : back();
      // In place, on the compute stream's side: the messages start after it.
      context.group.all_reduce(buffer.view(), ReduceOp::kMax, {"both have it"}).wait();
      is_first ? back() : there();
    }
    context.group.all_reduce(buffer.view(), ReduceOp::kMax, {"end"}).block();
    EXPECT_TRUE(same_bits(buffer.values(), start));
  });
}

/// A receive that was posted early blocks nothing: neither the rank's sends nor its collectives.
TEST(NcclWorld, AWaitingReceiveBlocksNothingElse) {
  run_world(2, [](RankContext& context) {
    constexpr int kNumTags = 3;
    const int peer = 1 - context.rank;
    const DeviceBuffer<float> held(values_of<float>(context.rank, 1000)), sum(values_of<float>(context.rank, 1000));
    std::vector<std::unique_ptr<DeviceBuffer<float>>> received;
    Connections connections = {{{.group = "world"}, {}}};
    for (int tag = 0; tag < kNumTags; ++tag) {
      received.push_back(std::make_unique<DeviceBuffer<float>>(std::vector<float>(1000)));
      for (int sender : {0, 1})
        connections[{.group = "world", .sender = sender, .receiver = 1 - sender, .tag = tag}].largest = 4000;
    }
    testing::nccl_job().connect(connections);
    const GpuRanks::Step step(&testing::nccl_job());
    std::vector<Work> receives;
    for (int tag = 0; tag < kNumTags; ++tag)
      receives.push_back(context.group.recv(received[static_cast<size_t>(tag)]->view(), peer, tag, {"early"}));
    context.group.all_reduce(sum.view(), ReduceOp::kSum, {"beside them"}).block();
    for (int tag = kNumTags; tag-- > 0;) {
      Work send = context.group.send(held.view(), peer, tag, {"late"});
      receives[static_cast<size_t>(tag)].block();
      send.block();
      EXPECT_TRUE(same_bits(received[static_cast<size_t>(tag)]->values(), values_of<float>(peer, 1000))) << tag;
    }
    EXPECT_TRUE(same_bits(sum.values(), reference(ReduceOp::kSum, inputs_of<float>(2, 1000))));
  });
}

TEST(NcclWorld, ReportsTheTransportOfCollectivesAndSends) {
  run_world(2, [](RankContext& context) {
    NcclWorld& ranks = testing::nccl_job();
    ranks.connect({{{.group = "world"}, {.largest = 1024}},
                   {{.group = "world", .sender = 1, .receiver = 0, .tag = 3}, {.largest = 1024}}});
    const GpuRanks::Step step(&ranks);
    EXPECT_EQ(ranks.transports(), testing::copies_between_gpus() ? "messages of world: copies between GPUs\n"
                                                                   "rows of world: copies between GPUs"
                                                                 : "");
    // Sections and sends that are larger than the connected size are split into pieces.
    const int64_t own = 5000 * context.rank;
    const DeviceBuffer<float> rows(values_of<float>(context.rank, 10000)), apart(std::vector<float>(10000));
    context.group.all_gather(rows.view(own, 5000), apart.view(), {"rows"}).block();
    const auto first = testing::section_of(values_of<float>(0, 10000), 0, 5000);
    EXPECT_TRUE(same_bits(testing::section_of(apart.values(), 0, 5000), first));
    (context.rank == 1 ? context.group.send(rows.view(), 0, 3, {"x"}) : context.group.recv(apart.view(), 1, 3, {"x"}))
        .block();
    if (context.rank == 0) {
      EXPECT_TRUE(same_bits(apart.values(), values_of<float>(1, 10000)));
    }
  });
}

TEST(NcclWorld, RejectsUnconnectedOperationsInAStep) {
  run_world(2, [](RankContext& context) {
    const ProcessGroup pair = context.world.split("pair", {{0, 1}}).value();
    NcclWorld& ranks = testing::nccl_job();
    const int peer = 1 - context.rank;
    const DeviceBuffer<float> buffer(values_of<float>(context.rank, 1000));
    const auto message = [&](int tag) {
      return context.rank == 0 ? pair.send(buffer.view(), peer, tag, {"x"})
                               : pair.recv(buffer.view(), peer, tag, {"x"});
    };
    ranks.connect({{{.group = "pair", .sender = 0, .receiver = 1, .tag = 3}, {.largest = 4000}}});
    EXPECT_THROW(ranks.connect({{{.group = "no such group"}, {}}}), CommError);
    {
      const GpuRanks::Step step(&ranks);
      message(3).block();
      EXPECT_TRUE(same_bits(buffer.values(), values_of<float>(0, 1000)));
      EXPECT_THROW(message(4).wait(), CommError);
      EXPECT_THROW(pair.all_reduce(buffer.view(), ReduceOp::kSum, {"x"}).wait(), CommError);
    }
    message(4).wait();
    pair.all_reduce(buffer.view(), ReduceOp::kAverage, {"x"}).block();
    EXPECT_TRUE(same_bits(buffer.values(), values_of<float>(0, 1000)));
  });
}

TEST(NcclWorld, AWorkThatIsDroppedAfterAllEnteredCompletes) {
  run_world(2, [](RankContext& context) {
    const DeviceBuffer<float> buffer(values_of<float>(context.rank, 100000));
    Work work = context.group.all_reduce(buffer.view(), ReduceOp::kSum, {"x"});
    context.group.barrier({"all have entered"}).wait();
    if (context.rank == 1) work = Work();
    work.block();
    EXPECT_TRUE(same_bits(buffer.values(), reference(ReduceOp::kSum, inputs_of<float>(2, 100000))));
  });
}

TEST(NcclWorld, AGroupOfOneCopiesDeviceMemory) {
  run_world(2, [](RankContext& context) {
    const ProcessGroup own = context.world.split("own", {{0}, {1}}).value();
    const DeviceBuffer<float> from(values_of<float>(context.rank, 77)), to(std::vector<float>(77));
    own.all_gather(from.view(), to.view(), {"x"}).block();
    context.group.all_reduce(to.view(), ReduceOp::kAverage, {"after the copy"}).block();
    EXPECT_TRUE(same_bits(to.values(), reference(ReduceOp::kAverage, inputs_of<float>(2, 77))));
  });
}

}  // namespace
}  // namespace megatron
