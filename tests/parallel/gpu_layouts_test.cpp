// The layouts of ranks with a GPU each, on the CPU, where those of eight ranks can be had everywhere.
#include "tests/parallel/gpu_layouts.h"

#include <gtest/gtest.h>

#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

class GpuLayouts : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, GpuLayouts, ::testing::Values(2, 4, 8));

TEST_P(GpuLayouts, TrainAsOneRankDoes) {
  constexpr int kSteps = 3;
  OneRankCurves one_rank(kSteps);
  const auto expect_same = [&](const std::string& model, const std::vector<std::string>& layouts) {
    for (const std::string& layout : layouts)
      expect_same_curve(train_layout(model + layout, GetParam(), kSteps), one_rank.of(model), model + layout);
  };
  const std::string words = std::string(kGpuModel) + " --fp64";
  for (const std::string& model : {gpt2_like(words), llama_like(words)}) expect_same(model, gpu_layouts_of(GetParam()));
  expect_same(llama_like(words + " --num-layers 8"), deep_gpu_layouts_of(GetParam()));
}

}  // namespace
}  // namespace megatron::testing
