// The verifier finds faults, names the right tensor, and finds none where there is none.
#include "megatron/training/verify_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSize = " --num-layers 4 --global-batch-size 12 --micro-batch-size 1 --lr 1e-3";
constexpr const char* kQkv = "decoder.layers.2.self_attention.linear_qkv.weight";

std::string model_of(const std::string& precision = " --fp64") { return gpt2_like(kSize + precision); }

ReferenceRun reference_of(const std::string& model, int64_t num_steps = 3) {
  const PretrainConfig config = small_config(model);
  std::vector<GlobalBatch> batches;
  for (int64_t step = 0; step < num_steps; ++step) batches.push_back(batches_of(config, step));
  return ReferenceRun(config, std::move(batches));
}

const std::vector<Layout> kLayouts = {
    {" --recompute-granularity full --recompute-method uniform --recompute-num-layers 1", 1},
    {" --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather", 3},
    {" --tensor-model-parallel-size 4 --sequence-parallel", 4},
    {" --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", 4},
    {" --pipeline-model-parallel-size 2 --pipeline-schedule zb-v --use-distributed-optimizer", 4}};

LayoutReport verify(const ReferenceRun& reference, const std::string& model, const Layout& layout,
                    const VerifyHooks& hooks = {}) {
  return verify_layout(reference, small_config(model + layout.words, layout.num_ranks), hooks);
}

Parameter* find(Trainer& trainer, const std::string& name) {
  for (Parameter* parameter : trainer.model().parameters())
    if (parameter->name() == name) return parameter;
  return nullptr;
}

TEST(VerifyLayouts, FindsNothingWhereNothingIsWrong) {
  for (const std::string& model : {model_of(), model_of(" --fp64 --optimizer sgd --clip-grad 0"), model_of(""),
                                   llama_like(kSize + std::string(" --fp64"))}) {
    const ReferenceRun reference = reference_of(model);
    for (const Layout& layout : kLayouts) {
      const LayoutReport report = verify(reference, model, layout);
      EXPECT_TRUE(report.is_same()) << model << layout.words << ": " << report.largest.tensor << " "
                                    << report.largest.severity() << " " << report.failure;
    }
  }
}

TEST(VerifyLayouts, HasBoundsThatFaultsStandOutOf) {
  const ReferenceRun reference = reference_of(model_of());
  EXPECT_LT(reference.relative_bound(reference.eps()), 1e-12);
  for (const Layout& layout : kLayouts) {
    const LayoutDifference largest = verify(reference, model_of(), layout).largest;
    EXPECT_LT(largest.error, 1e-10) << layout.words;
    EXPECT_LT(largest.bound, 1e-9) << layout.words;
  }
}

TEST(VerifyLayouts, NamesAWeightThatWasCorruptedBeforeAStep) {
  const ReferenceRun reference = reference_of(model_of());
  for (const Layout& layout : kLayouts) {
    const int guilty = layout.num_ranks - 1;
    std::string corrupted;
    const LayoutReport report =
        verify(reference, model_of(), layout, {.before_step = [&](Trainer& trainer, int64_t step) {
                 if (step != 1 || trainer.groups().world.rank() != guilty) return;
                 Parameter& parameter = *trainer.model().parameters().back();
                 corrupted = parameter.name();
                 std::as_const(parameter).value();  // has arrived
                 parameter.value().data<double>()[0] += 1e-4;
               }});
    ASSERT_FALSE(report.is_same()) << layout.words;
    const LayoutDifference& first = report.departures[0];
    EXPECT_EQ(first.compared, Compared::kWeight);
    EXPECT_EQ(first.tensor, corrupted);
    EXPECT_EQ(first.rank, guilty);
    EXPECT_EQ(first.step, 1);
    EXPECT_GT(first.error, 100 * first.bound);
  }
}

/// Doubles a rank's own gradient of a parameter before replicas are summed.
VerifyHooks with_scaled_gradient(const std::string& name) {
  return {.before_step = [name](Trainer& trainer, int64_t step) {
    Parameter* parameter = find(trainer, name);
    if (!parameter || step != 1) return;
    parameter->on_ready = [before = parameter->on_ready](Parameter& ready) {
      double* gradient = ready.main_grad().data<double>();
      for (int64_t i = 0; i < ready.main_grad().num_elements(); ++i) gradient[i] *= 2;
      if (before) before(ready);
    };
  }};
}

TEST(VerifyLayouts, NamesAGradientOfAWrongScale) {
  const ReferenceRun reference = reference_of(model_of());
  for (const Layout& layout : kLayouts) {
    const LayoutReport report = verify(reference, model_of(), layout, with_scaled_gradient(kQkv));
    ASSERT_FALSE(report.is_same()) << layout.words;
    const LayoutDifference& first = report.departures[0];
    EXPECT_EQ(first.compared, Compared::kGradient);
    EXPECT_EQ(first.tensor, kQkv) << layout.words;
    EXPECT_EQ(first.step, 1);
    EXPECT_NEAR(first.error, 1, 1e-9) << "twice what it should be";
    EXPECT_EQ(report.departures.back().compared, Compared::kGradNorm);
    EXPECT_EQ(report.departures.size(), 2) << "no other gradient of this step departs";
  }
}

TEST(VerifyLayouts, NamesTheLossFirstWhereForwardIsWrong) {
  const std::string model = model_of();
  const ReferenceRun reference = reference_of(model);
  const LayoutReport report = verify(reference, model + " --norm-epsilon 1e-3", kLayouts[3]);
  ASSERT_FALSE(report.is_same());
  EXPECT_EQ(report.departures[0].compared, Compared::kLoss);
  EXPECT_EQ(report.departures[0].step, 0);
  EXPECT_EQ(report.departures[1].tensor, "decoder.final_layernorm.bias") << "backward meets it first";
}

TEST(VerifyLayouts, SeesAnotherOptimizerInTheWeightsAfterTheStep) {
  const std::string model = model_of();
  const ReferenceRun reference = reference_of(model, 1);
  const LayoutReport report = verify(reference, model + " --lr 1.0001e-3", kLayouts[1]);
  ASSERT_FALSE(report.is_same());
  EXPECT_EQ(report.departures[0].compared, Compared::kWeight);
  EXPECT_EQ(report.departures[0].step, 1) << "after the last step";
}

TEST(VerifyLayouts, ReportsALayoutThatFails) {
  const ReferenceRun reference = reference_of(model_of());
  const LayoutReport report =
      verify(reference, model_of(), kLayouts[3], {.before_step = [](Trainer& trainer, int64_t step) {
               require<Error>(step != 1 || trainer.groups().world.rank() != 2, "lost");
             }});
  EXPECT_FALSE(report.is_same());
  EXPECT_THAT(report.failure, HasSubstr("rank 2"));
}

TEST(VerifyLayouts, RefusesPrecisionsThatHideFaults) {
  EXPECT_THAT([] { reference_of(model_of(" --bf16")); }, ::testing::ThrowsMessage<NotSupported>(HasSubstr("--fp64")));
}

}  // namespace
}  // namespace megatron::testing
