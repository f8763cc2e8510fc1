#include "megatron/training/profile/training_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/profile/profiled_run.h"

namespace megatron {
namespace {

using testing::gpt2_like;
using ::testing::HasSubstr;
using testing::llama_like;
using testing::profiled_run;
using testing::ProfiledRun;
using testing::small_config;
using testing::TimelineEvent;
using testing::train;
using testing::train_profiled;
using testing::weights_of;

using Counts = std::map<std::string, int>;

Counts counts_of(const std::vector<TimelineEvent>& events, const std::string& module = "") {
  Counts counts;
  for (const TimelineEvent& event : events)
    if (module.empty() || (event.args.contains("module") && event.args.at("module").starts_with(module)))
      ++counts[event.name];
  return counts;
}

const std::string kTwoLayers = " --num-layers 2 --global-batch-size 2 --profile --profile-step-start 0";

/// A layer forward: two norms, four products, two parts of the mixed query, key and value rotated, one copied,
/// attention, SwiGLU, two residuals; backward the same, with a gradient of each weight. The norms add up the two
/// branches of the residual stream's gradient.
TEST(TrainingProfile, HasEveryOpOfALayerOnce) {
  const ProfiledRun run = profiled_run(llama_like(kTwoLayers + " --profile-step-end 1"), 1);
  const auto& ops = run.timelines.at(0).at("compute");
  const Counts layer = {
      {"rms_norm", 2},    {"rms_norm.B", 2},  {"linear", 4},       {"linear.B", 4},         {"linear.W", 4},
      {"split_qkv", 1},   {"split_qkv.B", 1}, {"rope", 2},         {"rope.B", 2},           {"attention", 1},
      {"attention.B", 1}, {"activation", 1},  {"activation.B", 1}, {"bias_dropout_add", 2}, {"bias_dropout_add.B", 2}};
  for (const char* module : {"decoder.layers.0.", "decoder.layers.1."})
    EXPECT_EQ(counts_of(ops, module), layer) << module;
}

/// Final norm; logits with their gradients; loss of the tokens and its sum; lookup and dropout. One micro-batch.
TEST(TrainingProfile, HasTheOpsOutsideOfLayers) {
  const ProfiledRun run = profiled_run(llama_like(kTwoLayers + " --profile-step-end 1"), 1);
  const auto& ops = run.timelines.at(0).at("compute");
  EXPECT_EQ(counts_of(ops, "decoder.final_layernorm"), (Counts{{"rms_norm", 1}, {"rms_norm.B", 1}}));
  EXPECT_EQ(counts_of(ops, "output_layer"),
            (Counts{{"linear", 1}, {"linear.B", 1}, {"linear.W", 1}, {"cross_entropy", 1}, {"cross_entropy.B", 1}}));
  const Counts all = counts_of(ops);
  EXPECT_EQ(all.at("embedding"), 1);
  EXPECT_EQ(all.at("masked_sum"), 1);
  EXPECT_EQ(all.at("masked_sum.B"), 1);
  EXPECT_EQ(all.at("optimizer"), 1);  // Adam goes over all weights at once
}

TEST(TrainingProfile, SaysWhereAnOpIsAndOnWhatItWorks) {
  const ProfiledRun run = profiled_run(llama_like(kTwoLayers + " --profile-step-end 1"), 1);
  std::vector<std::string> found;
  for (const TimelineEvent& op : run.timelines.at(0).at("compute"))
    if (op.name.starts_with("linear") && op.args.at("module") == "decoder.layers.1.mlp.linear_fc2")
      found.push_back(op.name + " " + op.args.at("shape"));
  // 16 positions of 2 samples; 48 columns to 32. Extents are m, n, k.
  EXPECT_THAT(found,
              ::testing::UnorderedElementsAre("linear [32, 32, 48]", "linear.B [32, 48, 32]", "linear.W [32, 48, 32]"));
}

TEST(TrainingProfile, MarksWhatIsComputedAgain) {
  const ProfiledRun run = profiled_run(
      llama_like(kTwoLayers + " --profile-step-end 1 --recompute-granularity full --recompute-method uniform "
                              "--recompute-num-layers 1"),
      1);
  const Counts layer = counts_of(run.timelines.at(0).at("compute"), "decoder.layers.1.");
  EXPECT_EQ(layer.at("linear"), 4);
  EXPECT_EQ(layer.at("linear.recompute"), 4);
  EXPECT_EQ(layer.at("linear.B"), 4);
  EXPECT_EQ(layer.at("linear.W"), 4);
}

TEST(TrainingProfile, EventsOfAThreadLieInEachOtherOrBesideEachOther) {
  const ProfiledRun run = profiled_run(gpt2_like(kTwoLayers + " --profile-step-end 2"), 2);
  for (const auto& [thread, events] : run.timelines.at(0)) {
    std::vector<TimelineEvent> open;
    for (const TimelineEvent& event : events) {
      EXPECT_GE(event.end, event.begin) << event.name;
      while (!open.empty() && open.back().end <= event.begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(event.end, open.back().end) << event.name << " in " << open.back().name;
      }
      open.push_back(event);
    }
  }
}

TEST(TrainingProfile, ClassesAndGapsAddUpToTheTimeOfTheSteps) {
  const ProfiledRun run = profiled_run(gpt2_like(kTwoLayers + " --profile-step-end 2"), 2);
  int64_t sum = 0, steps = 0, ops = 0;
  for (const auto& [name, ns] : run.totals.at("rank 0, ns").items()) sum += ns.get<int64_t>();
  for (const TimelineEvent& event : run.timelines.at(0).at("host"))
    if (event.name.starts_with("step ")) steps += event.end - event.begin;
  for (const TimelineEvent& event : run.timelines.at(0).at("compute")) ops += event.end - event.begin;
  EXPECT_EQ(sum, steps);
  EXPECT_EQ(run.totals.at("rank 0, ns").at("host gaps").get<int64_t>(), steps - ops);
  EXPECT_GT(ops, steps / 10);
  EXPECT_EQ(run.totals.at("rank 0, ns").at("communication"), 0);
  EXPECT_GT(run.totals.at("rank 0, ns").at("matrix products"), 0);
}

TEST(TrainingProfile, RecordsTheChosenStepsAndTellsTheTable) {
  const ProfiledRun run =
      profiled_run(gpt2_like("--profile --profile-step-start 1 --profile-step-end 3 --profile-trace profile.json"), 5);
  std::vector<std::string> steps;
  for (const TimelineEvent& event : run.timelines.at(0).at("host"))
    if (event.name.starts_with("step ")) steps.push_back(event.name);
  EXPECT_EQ(steps, (std::vector<std::string>{"step 2", "step 3"}));
  EXPECT_THAT(run.report, HasSubstr("profile of steps 2 to 3: profile.json"));
  EXPECT_THAT(run.report, HasSubstr("\nmatrix products "));
  EXPECT_THAT(run.report, HasSubstr("\nhost gaps "));
}

TEST(TrainingProfile, WritesWhatThereIsWhereTrainingEndsBefore) {
  const ProfiledRun run = profiled_run(gpt2_like("--profile --profile-step-start 1 --profile-step-end 30"), 3);
  EXPECT_THAT(run.report, HasSubstr("profile of steps 2 to 3"));
}

TEST(TrainingProfile, ChangesNoBit) {
  for (const std::string& model : {gpt2_like(), llama_like()}) {
    Trainer plain(small_config(model), {});
    train(plain, 0, 3);
    HostMemoryFiles files;
    Trainer profiled(small_config(model + " --profile --profile-step-start 0 --profile-step-end 3"), {});
    train_profiled(profiled, files, 3);
    EXPECT_TRUE(files.exists("profile.json"));
    EXPECT_EQ(weights_of(profiled), weights_of(plain));
    EXPECT_EQ(profiled.device().num_operations, plain.device().num_operations);
  }
}

TEST(TrainingProfile, WithoutTheFlagNobodyListensAndNothingIsWritten) {
  HostMemoryFiles files;
  Trainer trainer(small_config(gpt2_like()), {});
  TrainingProfile profile(trainer, files, {});
  profile.begin_step();
  EXPECT_EQ(trainer.device().profiler, nullptr);
  train(trainer, 0, 1);
  profile.end_step();
  profile.finish();
  EXPECT_EQ(files.total_bytes(), 0);
}

}  // namespace
}  // namespace megatron
