// Layouts that share experts between ranks train as one rank does, and load what any other has saved.
#include <gtest/gtest.h>

#include "megatron/training/verify/covering_set.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 6;

/// Losses and the bias do not depend on the size of a micro-batch; the loads that move the bias are whole numbers.
const std::string kExperts =
    "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 20 --moe-router-score-function sigmoid "
    "--moe-router-enable-expert-bias --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-2 "
    "--moe-z-loss-coeff 1e-3 --moe-shared-expert-intermediate-size 16 ";

std::string model(const std::string& extra) {
  return llama_like("--lr 1e-3 --num-layers 4 --global-batch-size 8 --micro-batch-size 1 --hidden-size 24 " + kExperts +
                    extra);
}

/// A layout of at most 8 ranks.
struct ExpertLayout {
  int64_t tensor, pipeline, data, expert, expert_tensor;
  bool shards, overlaps;
  int64_t schedule, recompute;

  int64_t num_ranks() const { return tensor * pipeline * data; }
  FactorValues values() const {
    return {tensor, pipeline, data, expert, expert_tensor, shards, overlaps, schedule, recompute};
  }
};

constexpr const char* kSchedules[] = {"", "--num-virtual-stages-per-pipeline-rank 2 ", "--pipeline-schedule zb-h1 ",
                                      "--pipeline-schedule zb-v "};
constexpr const char* kRecompute[] = {
    "", "--recompute-granularity selective --recompute-modules core_attn layernorm ",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "};

std::string words_of(const ExpertLayout& layout) {
  std::string words = fmt::format(
      "--tensor-model-parallel-size {} --pipeline-model-parallel-size {} --expert-model-parallel-size {} "
      "--expert-tensor-parallel-size {} {}{}",
      layout.tensor, layout.pipeline, layout.expert, layout.expert_tensor, kSchedules[layout.schedule],
      kRecompute[layout.recompute]);
  if (layout.tensor > 1) words += "--sequence-parallel ";
  if (layout.shards) words += "--use-distributed-optimizer ";
  if (layout.overlaps) words += "--overlap-grad-reduce --ddp-num-buckets 3 ";
  if (layout.overlaps && layout.shards) words += "--overlap-param-gather ";
  return words;
}

std::vector<ExpertLayout> all_layouts_with_experts() {
  std::vector<ExpertLayout> all;
  for (const int64_t tensor : {1, 2})
    for (const int64_t pipeline : {1, 2})
      for (const int64_t data : {1, 2, 4})
        for (const int64_t expert : {1, 2, 4})
          for (const int64_t expert_tensor : {1, 2})
            for (int bits = 0; bits < 4; ++bits)
              for (int64_t schedule = 0; schedule < (pipeline > 1 ? 4 : 1); ++schedule)
                for (int64_t recompute = 0; recompute < 3; ++recompute) {
                  const ExpertLayout layout{tensor,          pipeline,        data,     expert,   expert_tensor,
                                            (bits & 1) != 0, (bits & 2) != 0, schedule, recompute};
                  const bool is_idle = layout.overlaps && data == 1;
                  if (layout.num_ranks() <= 8 && tensor * data % (expert * expert_tensor) == 0 && !is_idle)
                    all.push_back(layout);
                }
  return all;
}

TEST(ExpertLayouts, EveryPairOfSettingsTrainsAsOneRankDoes) {
  const std::vector<ExpertLayout> all = all_layouts_with_experts();
  std::vector<FactorValues> rows;
  for (const ExpertLayout& layout : all) rows.push_back(layout.values());
  const std::string words = model("--fp64 ");
  const Curve one_rank = train_layout(words, 1, kSteps);
  const std::vector<size_t> chosen = pairwise_covering_set(rows);
  EXPECT_GT(chosen.size(), 15U);
  for (const size_t row : chosen)
    expect_same_curve(train_layout(words + words_of(all[row]), static_cast<int>(all[row].num_ranks()), kSteps),
                      one_rank, words_of(all[row]));
}

const std::vector<Layout> kLayouts = {
    {"", 1},
    {"", 2},
    {" --expert-model-parallel-size 2", 2},
    {" --expert-model-parallel-size 4 --use-distributed-optimizer", 4},
    {" --expert-model-parallel-size 2 --use-distributed-optimizer", 4},
    {" --tensor-model-parallel-size 2 --sequence-parallel", 2},
    {" --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1 --use-distributed-optimizer",
     4},
    {" --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--pipeline-model-parallel-size 2",
     8}};

TEST(ExpertLayouts, CheckpointsMoveFromAnyLayoutToAnyOtherBitForBit) {
  const std::string words = model("--bf16");
  for (size_t i = 0; i < kLayouts.size(); ++i) {
    const ScratchDirectory first;
    continue_to(words + saving(first), kLayouts[i], 2);
    const State expected = state_of(words + loading(first));
    EXPECT_EQ(expected.iteration, 2);
    for (const size_t step : {1, 3}) {
      const Layout& to = kLayouts[(i + step) % kLayouts.size()];
      const ScratchDirectory second;
      continue_to(words + loading(first) + saving(second), to, 2);
      EXPECT_EQ(state_of(words + loading(second)), expected) << kLayouts[i].words << " to " << to.words;
    }
  }
}

TEST(ExpertLayouts, AResumedRunGivesTheBitsOfOneThatWasNotStopped) {
  const std::string words = model("--bf16");
  for (const size_t i : {2, 3, 6, 7}) {
    const ScratchDirectory whole, half, resumed;
    const std::vector<double> losses = continue_to(words + saving(whole), kLayouts[i], 4);
    continue_to(words + saving(half), kLayouts[i], 2);
    const std::vector<double> rest = continue_to(words + loading(half) + saving(resumed), kLayouts[i], 4);
    EXPECT_EQ(std::vector<double>(losses.begin() + 2, losses.end()), rest) << kLayouts[i].words;
    EXPECT_EQ(state_of(words + loading(resumed)), state_of(words + loading(whole))) << kLayouts[i].words;
  }
}

}  // namespace
}  // namespace megatron::testing
