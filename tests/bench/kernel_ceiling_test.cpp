#include "megatron/bench/kernel_ceiling.h"

#include <gtest/gtest.h>

#include "megatron/bench/step_kernels.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

constexpr MeasureOptions kQuick{.warm_ups = 1, .repeats = 2, .seconds = 1e-3};
const std::set<KernelKind> kAll = {KernelKind::kProduct, KernelKind::kAttention, KernelKind::kMemory};

KernelCeiling ceiling_of(const std::string& words, const std::set<KernelKind>& kinds, int num_ranks = 1) {
  BenchDevice bench(DeviceKind::kCpu, 1);
  SilentProgress silent;
  return measure_ceiling(testing::small_config(words, num_ranks), kinds, bench, kQuick, silent);
}

MeasuredKernel measured(KernelKind kind, double calls, double operations, double bytes, double best) {
  return {{.name = "x", .kind = kind, .calls = calls, .operations = operations, .bytes = bytes}, {.best = best}};
}

TEST(KernelCeiling, IsTheSumOfTheKernelTimesOfAStep) {
  KernelCeiling ceiling;
  ceiling.kernels = {measured(KernelKind::kProduct, 3, 100, 10, 0.5), measured(KernelKind::kAttention, 2, 40, 10, 0.25),
                     measured(KernelKind::kMemory, 4, 0, 30, 0.125)};
  EXPECT_EQ(ceiling.seconds(), 1.5 + 0.5 + 0.5);
  EXPECT_EQ(ceiling.seconds(KernelKind::kProduct), 1.5);
  EXPECT_EQ(ceiling.operations(KernelKind::kProduct), 300);
  EXPECT_EQ(ceiling.operations(KernelKind::kAttention), 80);
  EXPECT_EQ(ceiling.kernels[2].bytes(), 120);
  EXPECT_EQ(share_of_bandwidth(ceiling.kernels[2], 480), 0.5);
}

TEST(KernelCeiling, MeasuresTheRequestedKinds) {
  const KernelCeiling products = ceiling_of(testing::gpt2_like(), {KernelKind::kProduct});
  EXPECT_EQ(products.kernels.size(), 15u);
  EXPECT_GT(products.best_product_rate, 0);
  EXPECT_EQ(products.copy_bandwidth, 0);
  const KernelCeiling all = ceiling_of(testing::llama_like("--bf16"), kAll);
  EXPECT_GT(all.copy_bandwidth, 0);
  for (const KernelKind kind : kAll) EXPECT_GT(all.seconds(kind), 0);
  EXPECT_DOUBLE_EQ(all.seconds(), all.seconds(KernelKind::kProduct) + all.seconds(KernelKind::kAttention) +
                                      all.seconds(KernelKind::kMemory));
  for (const MeasuredKernel& kernel : all.kernels) EXPECT_LE(kernel.timing.best, kernel.timing.median);
}

TEST(KernelCeiling, BelongsToTheBusiestPipelineRank) {
  // The last of three stages has a layer and the head, whose matmul is larger than all those of a layer.
  const KernelCeiling ceiling =
      ceiling_of(testing::gpt2_like("--pipeline-model-parallel-size 3 --make-vocab-size-divisible-by 16384"),
                 {KernelKind::kProduct}, 3);
  EXPECT_EQ(ceiling.kernels.size(), 15u);
  EXPECT_EQ(ceiling.kernels.back().kernel.name, "output wgrad");
  EXPECT_EQ(ceiling.kernels.front().kernel.calls, 2);
}

}  // namespace
}  // namespace megatron
