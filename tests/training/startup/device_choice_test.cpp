#include "megatron/training/startup/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/core/cuda_devices.h"
#include "megatron/training/startup/matmul_precision.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const DeviceNeeds& needs) {
  try {
    choose_device(needs);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceChoice, TakesTheCpuWhereItIsAskedFor) {
  const DeviceChoice choice = choose_device({.device = "cpu", .num_threads = 3});
  EXPECT_EQ(choice.kind, DeviceKind::kCpu);
  EXPECT_EQ(choice.text, "device: cpu, 3 threads a rank");
}

TEST(DeviceChoice, RefusesAGpuForWhatNoGpuCanDo) {
  EXPECT_THAT(refusal_of({.device = "cuda", .num_ranks = 2}), HasSubstr("a process each"));
  EXPECT_THAT(refusal_of({.device = "cuda", .dtype = DType::kFloat64}), HasSubstr("fp64"));
}

TEST(DeviceChoice, RunsOnTheCpuWhatNoGpuCanDo) {
  EXPECT_EQ(choose_device({.num_ranks = 2}).kind, DeviceKind::kCpu);
  EXPECT_EQ(choose_device({.dtype = DType::kFloat64}).kind, DeviceKind::kCpu);
}

TEST(DeviceChoice, RecordsNoGraphsOnTheCpu) {
  EXPECT_THAT(refusal_of({.device = "cpu", .records_graphs = true}), HasSubstr("--cuda-graph-impl"));
  EXPECT_THAT(refusal_of({.dtype = DType::kFloat64, .records_graphs = true}), HasSubstr("--cuda-graph-impl"));
}

TEST(DeviceChoice, HasNoTf32OnTheCpu) {
  EXPECT_THAT(refusal_of({.device = "cpu", .takes_tf32 = true}), HasSubstr("--float32-matmul-precision high"));
  EXPECT_THAT(refusal_of({.num_ranks = 2, .takes_tf32 = true}), HasSubstr("--float32-matmul-precision high"));
}

TEST(DeviceChoice, HasNoDropoutOfCudnnOnTheCpu) {
  EXPECT_THAT(refusal_of({.device = "cpu", .drops_by_cudnn = true}), HasSubstr("--cudnn-attention-dropout"));
  EXPECT_THAT(refusal_of({.num_ranks = 2, .drops_by_cudnn = true}), HasSubstr("--cudnn-attention-dropout"));
}

TEST(DeviceChoice, HasNoTf32OnGpusBeforeAmpere) {
  EXPECT_EQ(tf32_obstacle_of({.name = "Tesla V100-SXM2-32GB", .compute_capability = 70}),
            "TF32 takes compute capability 8.0 (Ampere) or a later one, and Tesla V100-SXM2-32GB has 7.0");
  for (const int capability : {80, 89, 90, 100}) EXPECT_EQ(tf32_obstacle_of({.compute_capability = capability}), "");
}

TEST(DeviceChoice, WarnsOfAttentionWithoutCudnnAndNamesThePackage) {
  const std::string warning = attention_warning("built-in kernels: cuDNN 9.10.2 is older than 9.18", 13000);
  for (const char* part : {"cuDNN 9.10.2 is older than 9.18", "a third", "nvidia-cudnn-cu13>=9.18", "LD_LIBRARY_PATH"})
    EXPECT_THAT(warning, HasSubstr(part));
  EXPECT_THAT(attention_warning("built-in kernels: libcudnn.so.9 cannot be loaded: no such file", 12080),
              HasSubstr("libcudnn9-cuda-12"));
  EXPECT_EQ(attention_warning("cuDNN 9.19.0", 13000), "");
  EXPECT_THAT(attention_warning("built-in kernels: this program was built without cuDNN", 13000),
              HasSubstr("build again"));
  EXPECT_EQ(choose_device({.device = "cpu"}).warning, "");
}

TEST(DeviceChoice, RanksThatNcclCanJoinNeedAGpuEach) {
  const auto num_gpus = static_cast<int>(find_cuda_devices().devices.size());
  const DeviceNeeds needs{.device = "cuda", .num_ranks = num_gpus + 1, .ranks_of_host = num_gpus + 1};
  EXPECT_THAT(refusal_of(needs), ::testing::Not(HasSubstr("a process each")));
  const std::string reason = fmt::format("{} ranks of this host need a GPU each", num_gpus + 1);
  EXPECT_THAT(refusal_of(needs), HasSubstr(num_gpus > 0 ? reason : ""));
}

TEST(DeviceChoice, SaysWhyThereIsNoGpu) {
  const CudaDevices gpus = find_cuda_devices();
  if (!gpus.devices.empty()) GTEST_SKIP() << "a GPU answers";
  EXPECT_FALSE(gpus.problem.empty());
  EXPECT_THAT(choose_device({}).text, HasSubstr(gpus.problem));
  EXPECT_THAT(refusal_of({.device = "cuda"}), HasSubstr(kHasCuda ? gpus.problem : "-DMEGATRON_CUDA=ON"));
}

}  // namespace
}  // namespace megatron
