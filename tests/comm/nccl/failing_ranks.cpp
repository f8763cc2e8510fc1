// Two ranks on GPUs, one of which fails as the argument says; failure_test.cpp reads the output of both.
#include <csignal>
#include <memory>
#include <thread>

#include "commands/exit_code.h"
#include "megatron/base/error.h"
#include "megatron/core/cuda_graph.h"
#include "tests/comm/buffers.h"
#include "tests/comm/nccl/nccl_ranks.h"

namespace megatron {
namespace {

using testing::view_of;

void sleep(int duration_ms) { std::this_thread::sleep_for(std::chrono::milliseconds(duration_ms)); }

/// The host waits for device memory only where it is read, so only the watchdog notices.
void reduce_on_device(const ProcessGroup& group) {
  void* data = nullptr;
  cudaMalloc(&data, sizeof(float));
  const View view{data, DType::kFloat32, {1}, Shape{1}.contiguous_strides(), nullptr};
  for (int i = 0; i < 100; ++i) {
    group.all_reduce(view, ReduceOp::kSum, {"grad bucket 7"}).wait();
    sleep(100);
  }
}

/// A gather by copies, which no abort of NCCL ends. Rank 1 never enters it.
Work gather_on_device(const ProcessGroup& group) {
  constexpr int64_t kSection = 1000;
  void* data = nullptr;
  cudaMalloc(&data, 2 * kSection * sizeof(float));
  const auto view = [&](int64_t begin, int64_t length) {
    return View{static_cast<float*>(data) + begin, DType::kFloat32, {length}, Shape{1}, nullptr};
  };
  return group.all_gather(view(group.rank() * kSection, kSection), view(0, 2 * kSection), {"rows"});
}

/// A send by copies. Both are connected, and rank 1 never sends.
void receive_on_device(const ProcessGroup& group, GpuRanks& ranks) {
  ranks.connect({{{.group = "world", .sender = 1, .receiver = 0, .tag = 0}, {.largest = 4000}}});
  const GpuRanks::Step step(&ranks);
  if (group.rank() == 1) sleep(60000);
  void* data = nullptr;
  cudaMalloc(&data, 4000);
  group.recv({data, DType::kFloat32, {1000}, Shape{1}, nullptr}, 1, 0, {"activation"}).block();
}

/// One send arrives and the next does not: its sender is gone.
void receive_two(const ProcessGroup& group) {
  std::vector<float> buffer(3);
  if (group.rank() == 1) {
    group.send(view_of(buffer), 0, 0, {"activation"}).block();
    raise(SIGKILL);
  }
  for (int i = 0; i < 2; ++i) group.recv(view_of(buffer), 1, 0, {"activation"}).block();
}

/// Waits as a training step does: the GPU waits for a collective, and the host waits only for the GPU.
void read_in_step(const ProcessGroup& group, GpuRanks& ranks) {
  const GpuRanks::Step step(&ranks);
  gather_on_device(group).wait();
  cudaDeviceSynchronize();
  step.check_what_was_read();
  throw Error("rows that were never sent are used");
}

/// Rank 0 waits inside of its graph for a second sum, which that of rank 1 does not have.
void launch_graphs_that_differ(const ProcessGroup& group, World& world, const testing::NcclRank& rank) {
  void* data = nullptr;
  cudaMalloc(&data, sizeof(float));
  const View view{data, DType::kFloat32, {1}, Shape{1}.contiguous_strides(), nullptr};
  const auto reduce = [&] { group.all_reduce(view, ReduceOp::kSum, {"grad bucket 7"}).wait(); };
  reduce();
  group.barrier({"connected"}).wait();
  world.set_timeout(std::chrono::milliseconds(500));
  const GpuRanks::Step step(rank.ranks.get());
  std::unique_ptr<CudaGraph> graph;
  {
    const GpuRanks::Recording recording(rank.ranks.get());
    graph = record_cuda_graph({.stream = rank.device->stream()}, [&] {
      for (int i = group.rank(); i < 2; ++i) reduce();
    });
  }
  rank.ranks->launch_graph("iteration 8", [&] { graph->launch(); });
  cudaDeviceSynchronize();
  if (group.rank() == 1) sleep(4000);
  step.check_what_was_read();
}

/// In the second of two steps that may be graphs the rank `with_change` must capture again.
void change_graph(const ProcessGroup& group, GpuRanks& ranks, int with_change) {
  ranks.begin_graph_step("iteration 7", "");
  ranks.begin_graph_step("iteration 8", group.rank() == with_change ? "it has less memory" : "");
  std::vector<float> buffer(3);
  group.all_reduce(view_of(buffer), ReduceOp::kSum, {"grad bucket 7"}).wait();
}

void run(const std::string& what, World& world, const testing::NcclRank& rank) {
  GpuRanks& ranks = *rank.ranks;
  const bool is_culprit = world.rank() == 1;
  const ProcessGroup group = world.split("world", {{0, 1}}, {.by_copy_engine = true}).value();
  group.barrier({"start"}).wait();
  std::vector<float> buffer(3);
  if (what == "split") {
    world.split(is_culprit ? "tp" : "dp", {{0, 1}});
  } else if (what == "hang" || what == "device" || what == "gather" || what == "read" || what == "message" ||
             what == "message on device") {
    group.set_timeout(std::chrono::milliseconds(500));
    if (what == "message on device") return receive_on_device(group, ranks);
    if (is_culprit) sleep(60000);
    if (what == "device") return reduce_on_device(group);
    if (what == "gather") return gather_on_device(group).block();
    if (what == "read") return read_in_step(group, ranks);
    if (what == "message") group.recv(view_of(buffer), 1, 0, {"activation"}).wait();
  } else if (what == "throw beside work" && is_culprit) {
    const Work work = group.all_reduce(view_of(buffer), ReduceOp::kSum, {"x"});
    throw ShapeError("five is not six");
  } else if (what == "drop" && is_culprit) {
    const Work dropped = group.all_reduce(view_of(buffer), ReduceOp::kSum, {"forgotten"});
  } else if (what == "drop") {
    sleep(4000);
  } else if (what == "graphs that differ") {
    return launch_graphs_that_differ(group, world, rank);
  } else if (what == "change") {
    return change_graph(group, ranks, 1);
  } else if (what == "change beside a rank that hangs") {
    world.set_timeout(std::chrono::milliseconds(500));
    if (is_culprit) sleep(60000);
    return change_graph(group, ranks, 0);
  } else if (what == "kill beside message") {
    return receive_two(group);
  }
  if (what == "throw" && is_culprit) throw ShapeError("five is not six");
  if (what == "kill" && is_culprit) raise(SIGKILL);
  if (what == "abort" && is_culprit) return world.abort("loss is not finite");
  if (what == "throw beside work") sleep(4000);
  group.all_reduce(view_of(buffer), ReduceOp::kSum, {"grad bucket 7"}).wait();
}

int run_rank(const LaunchEnvironment& launch, const std::string& what) {
  const int status = run_command("failing_ranks", std::cerr, [&] {
    const testing::NcclRank rank = testing::join_nccl_ranks(launch);
    run_nccl_rank(*rank.ranks, std::chrono::seconds(20), 1, [&](World& world) { run(what, world, rank); });
  });
  std::cerr << std::flush;
  return status;
}

}  // namespace
}  // namespace megatron

int main(int argc, char** argv) {
  return megatron::testing::run_nccl_ranks(
      2, argc, argv, [&](const megatron::LaunchEnvironment& launch) { return megatron::run_rank(launch, argv[1]); });
}
