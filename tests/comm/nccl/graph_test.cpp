// Operations of ranks on GPUs that are part of a CUDA graph on each.
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/base/error.h"
#include "megatron/core/cuda_graph.h"
#include "tests/comm/conformance/run_world.h"
#include "tests/comm/nccl/device_buffer.h"
#include "tests/comm/nccl/nccl_job.h"
#include "tests/comm/reduction_reference.h"

namespace megatron {
namespace {

using testing::DeviceBuffer;
using testing::RankContext;
using testing::run_world;
using testing::same_bits;
using testing::view_of;

/// After `work` has run, which connects its groups.
std::unique_ptr<CudaGraph> recorded(const std::function<void()>& work) {
  NcclWorld& ranks = testing::nccl_job();
  const GpuRanks::Step step(&ranks);
  const GpuRanks::Recording recording(&ranks);
  return record_cuda_graph(CudaStream{.stream = testing::compute_stream()}, work);
}

/// More collectives than PeerCopies has slots, and some that need two.
TEST(NcclGraph, EachLaunchCommunicatesTheCurrentMemory) {
  run_world(2, [](RankContext& context) {
    for (const auto& [section, num_rounds] : {std::pair<int64_t, int>{4097, 11}, {(26 << 18) + 3, 2}}) {
      const int64_t own = section * context.rank;
      const auto values = [&](float first) {
        std::vector<float> result(static_cast<size_t>(2 * section));
        for (size_t i = 0; i < result.size(); ++i) result[i] = first + static_cast<float>(i % 101);
        return result;
      };
      const DeviceBuffer<float> buffer(values(0)), apart(std::vector<float>(static_cast<size_t>(section)));
      const auto work = [&, num_rounds = num_rounds] {
        for (int round = 0; round < num_rounds; ++round) {
          context.group.reduce_scatter(buffer.view(), apart.view(), ReduceOp::kSum, {"rs"}).wait();
          context.group.all_gather(apart.view(), buffer.view(), {"ag"}).wait();
        }
        context.group.all_reduce(buffer.view(own, section), ReduceOp::kAverage, {"ar"}).wait();
      };
      // The all-reduce sums different sections on each rank, so only the results of the two ways are compared.
      const auto outcome_of = [&](float first, const std::function<void()>& run) {
        buffer.set(values(first + static_cast<float>(context.rank)));
        run();
        context.group.barrier({"all is done"}).wait();
        return buffer.values();
      };
      outcome_of(0, work);
      const std::unique_ptr<CudaGraph> graph = recorded(work);
      for (const float first : {1.F, -40.F, 7.F}) {
        const auto expected = outcome_of(first, work);
        const auto launch = [&] { testing::nccl_job().launch_graph("step", [&] { graph->launch(); }); };
        EXPECT_TRUE(same_bits(outcome_of(first, launch), expected)) << section << " " << first;
        EXPECT_NE(expected[0], 0);
      }
    }
  });
}

TEST(NcclGraph, IsCapturedAgainInAStepInWhichAllRanksHaveAChange) {
  run_world(2, [](RankContext& context) {
    NcclWorld& ranks = testing::nccl_job();
    for (const char* change : {"", "", "a change", "", "another change"})
      ranks.begin_graph_step("step",
                             std::string_view(change).empty() ? "" : fmt::format("{} of {}", change, context.rank));
  });
}

TEST(NcclGraph, RejectsOperationsThatEndOnTheHostOrBeganElsewhere) {
  run_world(2, [](RankContext& context) {
    const DeviceBuffer<float> buffer(std::vector<float>(100));
    std::vector<float> on_host(100);
    const auto reduce = [&] { return context.group.all_reduce(buffer.view(), ReduceOp::kSum, {"x"}); };
    reduce().wait();
    EXPECT_THROW(recorded([&] { context.group.all_reduce(view_of(on_host), ReduceOp::kSum, {"y"}).wait(); }),
                 InternalError);
    EXPECT_THROW(recorded([&] { context.group.barrier({"z"}).wait(); }), InternalError);
    Work earlier = reduce();
    EXPECT_THROW(recorded([&] { earlier.wait(); }), InternalError);
    earlier.wait();
    EXPECT_THROW(GpuRanks::Recording(&testing::nccl_job()), InternalError) << "outside of a step";
    reduce().block();
  });
}

/// Copied sends count pieces: a second launch would read a slot before its data have arrived.
TEST(NcclGraph, RejectsSendsByCopies) {
  run_world(2, [](RankContext& context) {
    testing::nccl_job().connect({{{.group = "world", .sender = 0, .receiver = 1, .tag = 0}, {.largest = 400}}});
    const DeviceBuffer<float> buffer(std::vector<float>(100, context.rank == 0 ? 3.F : 0.F));
    const auto message = [&] {
      return context.rank == 0 ? context.group.send(buffer.view(), 1, 0, {"x"})
                               : context.group.recv(buffer.view(), 0, 0, {"x"});
    };
    if (!testing::copies_between_gpus()) GTEST_SKIP() << "NCCL's messages may be recorded";
    EXPECT_THROW(recorded([&] { message().wait(); }), NotSupported);
    message().block();
    EXPECT_EQ(buffer.values(), std::vector<float>(100, 3.F));
  });
}

/// A half captured operation does not block later ones either.
TEST(NcclGraph, RejectsHostWaitsInACapture) {
  run_world(2, [](RankContext& context) {
    const DeviceBuffer<float> buffer(std::vector<float>(100, 1.F));
    const auto reduce = [&] { return context.group.all_reduce(buffer.view(), ReduceOp::kSum, {"x"}); };
    reduce().block();
    EXPECT_THROW(recorded([&] { reduce().block(); }), InternalError);
    reduce().block();
    EXPECT_EQ(buffer.values(), std::vector<float>(100, 4.F));
  });
}

}  // namespace
}  // namespace megatron
