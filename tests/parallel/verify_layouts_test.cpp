// The verifier finds faults, names the right tensor, and finds none where there is none.
#include "megatron/training/verify/verify_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSize = " --num-layers 4 --global-batch-size 6 --micro-batch-size 1 --lr 1e-3";
constexpr const char* kQkv = "decoder.layers.2.self_attention.linear_qkv.weight";

std::string model_of(const std::string& precision = " --fp64") { return gpt2_like(kSize + precision); }

ReferenceRun reference_of(const std::string& model, int64_t num_steps = 3) {
  const PretrainConfig config = small_config(model);
  std::vector<GlobalBatch> batches;
  for (int64_t step = 0; step < num_steps; ++step) batches.push_back(batches_of(config, step));
  return ReferenceRun(config, std::move(batches));
}

/// Returns the reference run of model_of().
const ReferenceRun& usual_reference() {
  static const ReferenceRun reference = reference_of(model_of());
  return reference;
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
    const ReferenceRun reference = reference_of(model, 2);
    for (const Layout& layout : kLayouts) {
      const LayoutReport report = verify(reference, model, layout);
      EXPECT_TRUE(report.is_same()) << model << layout.words << ": " << report.largest.tensor << " "
                                    << report.largest.severity() << " " << report.failure;
    }
  }
}

TEST(VerifyLayouts, FindsNothingInAMixtureOfExpertsThatMovesItsExpertBias) {
  const std::string model = llama_like(std::string(kSize) +
                                       " --fp64 --num-experts 4 --moe-ffn-hidden-size 24 --moe-layer-freq 2"
                                       " --moe-router-score-function sigmoid --moe-router-enable-expert-bias"
                                       " --moe-aux-loss-coeff 1e-2 --moe-shared-expert-intermediate-size 12");
  const ReferenceRun reference = reference_of(model, 2);
  for (const Layout& layout : {kLayouts[0], kLayouts[1], kLayouts[4]}) {
    const LayoutReport report = verify(reference, model, layout);
    EXPECT_TRUE(report.is_same()) << layout.words << ": " << report.largest.tensor << " " << report.largest.severity()
                                  << " " << report.failure;
  }
}

/// A constant that is added to all keys changes no weight of attention: the gradient of k_layernorm.bias is 0 but for
/// rounding, which has no size of its own to compare with.
TEST(VerifyLayouts, FindsNothingInAGradientThatIsRoundingAlone) {
  const std::string model = model_of(" --fp64 --qk-layernorm");
  const ReferenceRun reference = reference_of(model);
  for (const Layout& layout :
       {Layout{" --tensor-model-parallel-size 2", 2}, Layout{" --pipeline-model-parallel-size 2", 2}, Layout{"", 3}}) {
    const LayoutReport report = verify(reference, model, layout);
    EXPECT_TRUE(report.is_same()) << layout.words << ": " << report.largest.tensor << " " << report.largest.severity()
                                  << " " << report.failure;
  }
  for (int64_t step = 0; step < reference.num_steps(); ++step) {
    const auto& gradients = reference.step(step).gradients;
    const ReferenceTensor& bias = gradients.at("decoder.layers.1.self_attention.k_layernorm.bias");
    const ReferenceTensor& weight = gradients.at("decoder.layers.1.self_attention.k_layernorm.weight");
    EXPECT_LT(reference.bound(bias.largest, bias.deviation), 1e-10 * weight.largest) << "hides no fault";
  }
}

/// Errors differ from model to model by more than their bounds should: half of it is room.
TEST(VerifyLayouts, FindsNothingWhateverTheInitialWeights) {
  for (int seed = 1; seed <= 4; ++seed) {
    const std::string model = model_of(fmt::format(
        " --fp64 --num-layers 4 --micro-batch-size 2 --hidden-size 48 --num-attention-heads 6 --seq-length 24 "
        "--max-position-embeddings 24 --seed {}",
        seed));
    const LayoutReport report =
        verify(reference_of(model, 2), model, {" --tensor-model-parallel-size 3 --sequence-parallel", 3});
    EXPECT_TRUE(report.is_same()) << report.failure;
    EXPECT_LT(report.largest.severity(), 0.5) << "seed " << seed << ": " << report.largest.tensor;
  }
}

TEST(VerifyLayouts, HasBoundsThatFaultsStandOutOf) {
  const ReferenceRun& reference = usual_reference();
  for (const Layout& layout : kLayouts) {
    const LayoutDifference largest = verify(reference, model_of(), layout).largest;
    EXPECT_LT(largest.error, 1e-10) << layout.words;
    EXPECT_LT(largest.bound, 1e-9) << layout.words;
  }
}

TEST(VerifyLayouts, NamesAWeightThatWasCorruptedBeforeAStep) {
  const ReferenceRun& reference = usual_reference();
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

/// Scales a rank's own gradient of a parameter before replicas are summed.
VerifyHooks with_scaled_gradient(const std::string& name, double factor) {
  return {.before_step = [name, factor](Trainer& trainer, int64_t step) {
    Parameter* parameter = find(trainer, name);
    if (!parameter || step != 1) return;
    parameter->on_ready = [factor, before = parameter->on_ready](Parameter& ready) {
      double* gradient = ready.main_grad().data<double>();
      for (int64_t i = 0; i < ready.main_grad().num_elements(); ++i) gradient[i] *= factor;
      if (before) before(ready);
    };
  }};
}

TEST(VerifyLayouts, NamesAGradientOfAWrongScale) {
  const ReferenceRun& reference = usual_reference();
  for (const Layout& layout : kLayouts) {
    const LayoutReport report = verify(reference, model_of(), layout, with_scaled_gradient(kQkv, 2));
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

TEST(VerifyLayouts, NamesAGradientThatIsOffByAMillionth) {
  for (const std::string& model : {model_of(), model_of(" --fp64 --qk-layernorm")}) {
    const ReferenceRun reference = reference_of(model, 2);
    const LayoutReport report = verify(reference, model, kLayouts[3], with_scaled_gradient(kQkv, 1 + 1e-6));
    ASSERT_FALSE(report.is_same());
    EXPECT_EQ(report.departures[0].compared, Compared::kGradient);
    EXPECT_EQ(report.departures[0].tensor, kQkv);
    EXPECT_EQ(report.departures[0].step, 1);
    EXPECT_NEAR(report.departures[0].error, 1e-6, 1e-9);
    EXPECT_GT(report.departures[0].severity(), 1000);
  }
}

TEST(VerifyLayouts, NamesTheLossFirstWhereForwardIsWrong) {
  const std::string model = model_of();
  const LayoutReport report = verify(usual_reference(), model + " --norm-epsilon 1e-3", kLayouts[3]);
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
  const ReferenceRun& reference = usual_reference();
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
