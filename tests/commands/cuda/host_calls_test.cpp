// CUDA calls of a training step on the host, counted by CUPTI in runs of different length, so that calls that
// happen once cancel out. Without a GPU or CUPTI the tests are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "megatron/core/cuda_devices.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using testing::joined;
using testing::Program;
using testing::ScratchDirectory;
using testing::Words;
using testing::words_of;

using Counts = std::map<std::string, int64_t>;  // by the name of a function of the CUDA runtime or of its driver

constexpr int kWarmUpSteps = 12, kSteps = 10;

/// The speed of kernels is not measured: the first run of a model on a machine would make calls that later ones, which
/// find the result in a file, do not make.
void run_training(const Words& flags, int num_steps) {
  Program training(
      joined(words_of(MEGATRON_PROGRAM " pretrain_gpt --device cuda --lr 1e-4 --mock-data --eval-iters 0"
                                       " --tokenizer-type NullTokenizer --log-interval 1 --no-measure-speed"
                                       " --train-iters " +
                      std::to_string(num_steps)),
             flags));
  EXPECT_EQ(training.wait_status(), 0) << training.output();
}

/// The calls of a whole run, and of the first of several ranks. Empty if nothing was counted.
Counts calls_of_a_run(const Words& flags, int num_steps) {
  const ScratchDirectory scratch;
  const std::string file = scratch.file("counts");
  ::setenv("CUDA_INJECTION64_PATH", COUNT_CUDA_CALLS, 1);
  ::setenv("COUNT_CUDA_CALLS_FILE", file.c_str(), 1);
  run_training(flags, num_steps);
  ::unsetenv("CUDA_INJECTION64_PATH");
  Counts counts;
  const std::string of_rank = file + ".0";
  std::ifstream stream(std::filesystem::exists(of_rank) ? of_rank : file);
  std::string name;
  for (int64_t number = 0; stream >> name >> number;) counts[name] = number;
  return counts;
}

/// The calls of `kSteps` steps after the first ones. Empty if nothing was counted.
Counts calls_of_steps(const Words& flags) {
  const Counts before = calls_of_a_run(flags, kWarmUpSteps);
  Counts calls;
  for (const auto& [name, number] : calls_of_a_run(flags, kWarmUpSteps + kSteps)) {
    const auto earlier = before.find(name);
    const int64_t more = number - (earlier == before.end() ? 0 : earlier->second);
    if (more != 0) calls[name] = more;
  }
  EXPECT_EQ(calls.empty(), before.empty()) << "what is counted, but not in a step";
  return calls;
}

bool is_of_the_runtime(const std::string& name) { return name.starts_with("cuda"); }

bool waits(const std::string& name) {
  return name.find("Synchronize") != std::string::npos || name.starts_with("cudaMemcpy_v") ||
         name.starts_with("cuMemcpyDtoH_v") || name.starts_with("cuMemcpyHtoD_v");
}

bool takes_or_gives_memory(const std::string& name) {
  for (const char* part :
       {"Malloc", "MemAlloc", "HostAlloc", "HostRegister", "MemCreate", "MemMap", "Free", "MemRelease"})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

struct Model {
  std::string name, flags;
};
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

class HostCalls : public ::testing::TestWithParam<Model> {
 protected:
  void SetUp() override {
    const CudaDevices gpus = find_cuda_devices();
    if (gpus.devices.empty()) GTEST_SKIP() << "no GPU answers: " << gpus.problem;
  }
};

/// One device-to-host copy has the loss and the gradient norm. A driver call of the runtime may be
/// reported in addition to the runtime's call.
void expect_one_wait_and_no_memory(const Counts& calls) {
  int64_t waits_of_runtime = 0, waits_of_driver = 0;
  for (const auto& [name, number] : calls) {
    EXPECT_FALSE(takes_or_gives_memory(name)) << name << " " << number << " times in " << kSteps << " steps";
    if (waits(name)) (is_of_the_runtime(name) ? waits_of_runtime : waits_of_driver) += number;
  }
  EXPECT_EQ(waits_of_runtime, kSteps);
  EXPECT_LE(waits_of_driver, kSteps);
}

int64_t number_of(const Counts& calls, const std::string& begin) {
  int64_t sum = 0;
  for (const auto& [name, number] : calls)
    if (name.starts_with(begin)) sum += number;
  return sum;
}

/// Ops of a step that a profile finds, but for copies and fills.
int64_t num_kernels_of_a_step(const Words& flags) {
  const ScratchDirectory scratch;
  const std::string file = scratch.file("trace.json");
  run_training(joined(flags, words_of("--profile --profile-step-start 2 --profile-step-end 3 --profile-trace " + file)),
               4);
  const auto events = nlohmann::json::parse(std::ifstream(file)).at("traceEvents");
  std::set<int64_t> rows;  // of ops
  for (const auto& event : events)
    if (event.at("ph") == "M" && event.at("name") == "thread_name" && event.at("args").at("name") == "compute")
      rows.insert(event.at("tid").get<int64_t>());
  return std::count_if(events.begin(), events.end(), [&](const auto& event) {
    if (event.at("ph") != "X" || !rows.contains(event.at("tid").template get<int64_t>())) return false;
    const auto name = event.at("name").template get<std::string>();
    return !name.starts_with("copy") && !name.starts_with("fill") && !name.starts_with("wait");
  });
}

TEST_P(HostCalls, AStepSynchronisesOnceAndAllocatesNothing) {
  const Words flags = words_of(GetParam().flags);
  const Counts calls = calls_of_steps(flags);
  if (calls.empty()) GTEST_SKIP() << "CUPTI cannot be loaded here";
  expect_one_wait_and_no_memory(calls);
  const int64_t launches = number_of(calls, "cudaLaunch") / kSteps, kernels = num_kernels_of_a_step(flags);
  EXPECT_LE(4 * launches, 5 * kernels) << "a few take several, such as the gradients of attention";
  EXPECT_GE(2 * launches, kernels) << "launches that are not counted";
  RecordProperty("launches_of_a_step", std::to_string(launches));
  RecordProperty("kernels_of_a_step", std::to_string(kernels));
}

TEST_P(HostCalls, AGraphStepIsOneLaunchAndTheOptimizersCalls) {
  const Words flags = words_of(GetParam().flags);
  const Counts op_by_op = calls_of_steps(flags);
  const Counts calls = calls_of_steps(joined(flags, words_of("--cuda-graph-impl full_iteration")));
  if (calls.empty()) GTEST_SKIP() << "CUPTI cannot be loaded here";
  expect_one_wait_and_no_memory(calls);
  EXPECT_EQ(number_of(op_by_op, "cudaGraphLaunch"), 0);
  EXPECT_EQ(number_of(calls, "cudaGraphLaunch"), kSteps);
  EXPECT_EQ(number_of(calls, "cudaGraphInstantiate"), 0) << "a step is recorded once";
  const int64_t launches = number_of(calls, "cudaLaunch");
  EXPECT_GT(launches, 0);
  EXPECT_LT(5 * launches, number_of(op_by_op, "cudaLaunch"));
  RecordProperty("launches_of_a_step_beside_the_graph", std::to_string(launches / kSteps));
}

/// The collectives of two ranks are part of each one's graph.
class HostCallsOfTwoRanks : public HostCalls {
 protected:
  void SetUp() override {
    if (const size_t number = find_cuda_devices().devices.size(); number < 2) GTEST_SKIP() << number << " GPUs answer";
  }
};

TEST_P(HostCallsOfTwoRanks, AGraphStepIsOneLaunchAndTheOptimizersCalls) {
  const Words flags = joined(words_of("--nproc-per-node 2 --bf16 --num-layers 3 --hidden-size 256"
                                      " --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128"
                                      " --micro-batch-size 2 --global-batch-size 8 --vocab-size 50256"),
                             words_of(GetParam().flags));
  const Counts op_by_op = calls_of_steps(flags);
  const Counts calls = calls_of_steps(joined(flags, words_of("--cuda-graph-impl full_iteration")));
  if (calls.empty()) GTEST_SKIP() << "CUPTI cannot be loaded here";
  expect_one_wait_and_no_memory(calls);
  EXPECT_EQ(number_of(calls, "cudaGraphLaunch"), kSteps);
  EXPECT_EQ(number_of(calls, "cudaGraphInstantiate"), 0) << "a step is recorded once";
  if (GetParam().name == "tensor_parallelism") {
    EXPECT_GT(number_of(op_by_op, "cuStreamBatchMemOp"), 0) << "rows by copies";
  }
  EXPECT_EQ(number_of(calls, "cuStreamBatchMemOp"), 0) << "rows are part of the graph";
  EXPECT_LE(3 * number_of(calls, "cudaLaunch"), number_of(op_by_op, "cudaLaunch"));
  EXPECT_LT(number_of(calls, "cudaEventRecord"), number_of(op_by_op, "cudaEventRecord"));
  for (const char* kind : {"cudaLaunch", "cudaEventRecord"})
    RecordProperty(std::string(kind) + "_of_a_step", std::to_string(number_of(calls, kind) / kSteps));
}

INSTANTIATE_TEST_SUITE_P(
    Of, HostCallsOfTwoRanks,
    ::testing::Values(Model{"replicas",
                            "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather"
                            " --ddp-num-buckets 20"},
                      Model{"tensor_parallelism", "--tensor-model-parallel-size 2 --sequence-parallel"}),
    [](const auto& model) { return model.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Of, HostCalls,
    ::testing::Values(Model{"gpt2_in_bf16",
                            "--bf16 --num-layers 3 --hidden-size 256 --num-attention-heads 4 --seq-length 128"
                            " --max-position-embeddings 128 --micro-batch-size 2 --global-batch-size 4"
                            " --vocab-size 50256"},
                      Model{"llama_in_fp16_with_the_distributed_optimizer",
                            "--fp16 --use-distributed-optimizer --num-layers 2 --hidden-size 240"
                            " --num-attention-heads 10 --group-query-attention --num-query-groups 5"
                            " --position-embedding-type rope --normalization RMSNorm --swiglu"
                            " --disable-bias-linear --untie-embeddings-and-output-weights --seq-length 61"
                            " --max-position-embeddings 61 --micro-batch-size 1 --global-batch-size 3"
                            " --vocab-size 1000"},
                      // The host copies 5 MiB of ids, labels and masks for 262,144 tokens a step.
                      Model{"many_tokens",
                            "--bf16 --num-layers 1 --hidden-size 64 --num-attention-heads 1 --seq-length 256"
                            " --max-position-embeddings 256 --micro-batch-size 64 --global-batch-size 1024"
                            " --vocab-size 1000"}),
    [](const auto& model) { return model.param.name; });

}  // namespace
}  // namespace megatron
