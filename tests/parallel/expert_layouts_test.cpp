// Layouts that share experts between ranks train as one rank does, and load what any other has saved.
#include <gtest/gtest.h>

#include "megatron/training/verify/covering_set.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/test_device.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 6;

/// Losses and the bias do not depend on the size of a micro-batch; the loads that move the bias are whole numbers.
const std::string kExperts =
    "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 20 --moe-router-score-function sigmoid "
    "--moe-router-enable-expert-bias --moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1e-2 "
    "--moe-z-loss-coeff 1e-3 --moe-shared-expert-intermediate-size 16 --moe-input-jitter-eps 0.02 ";

std::string model(const std::string& extra) {
  return llama_like("--lr 1e-3 --num-layers 4 --global-batch-size 8 --micro-batch-size 1 --hidden-size 24 " + kExperts +
                    extra);
}

/// A layout of at most 8 ranks.
struct ExpertLayout {
  int64_t tensor, context, pipeline, data, expert, expert_tensor, dispatcher;
  bool is_bounded, shards, overlaps;
  int64_t schedule, recompute;

  int64_t num_ranks() const { return tensor * context * pipeline * data; }
  FactorValues values() const {
    return {tensor,     context,    pipeline, data,     expert,   expert_tensor,
            dispatcher, is_bounded, shards,   overlaps, schedule, recompute};
  }
};

constexpr const char* kDispatchers[] = {"allgather", "alltoall", "flex"};
constexpr const char* kSchedules[] = {"", "--num-virtual-stages-per-pipeline-rank 2 ", "--pipeline-schedule zb-h1 ",
                                      "--pipeline-schedule zb-v "};
constexpr const char* kRecompute[] = {
    "", "--recompute-granularity selective --recompute-modules core_attn layernorm moe_act shared_experts ",
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 "};

std::string words_of(const ExpertLayout& layout) {
  std::string words = fmt::format(
      "--tensor-model-parallel-size {} --context-parallel-size {} --pipeline-model-parallel-size {} "
      "--expert-model-parallel-size {} "
      "--expert-tensor-parallel-size {} --moe-token-dispatcher-type {} {}{}",
      layout.tensor, layout.context, layout.pipeline, layout.expert, layout.expert_tensor,
      kDispatchers[layout.dispatcher], kSchedules[layout.schedule], kRecompute[layout.recompute]);
  if (layout.is_bounded) words += "--moe-expert-rank-capacity-factor 1.1 ";
  if (layout.tensor > 1) words += "--sequence-parallel ";
  if (layout.shards) words += "--use-distributed-optimizer ";
  if (layout.overlaps) words += "--overlap-grad-reduce --ddp-num-buckets 3 ";
  if (layout.overlaps && layout.shards) words += "--overlap-param-gather ";
  if (layout.overlaps && layout.dispatcher != 0) words += "--moe-shared-expert-overlap ";
  return words;
}

bool is_of_use(const ExpertLayout& layout) {
  const int64_t replicas = layout.data * layout.context, of_experts = layout.expert * layout.expert_tensor;
  return layout.num_ranks() <= 8 && layout.tensor * replicas % of_experts == 0 && !(layout.overlaps && replicas == 1) &&
         !(layout.is_bounded && layout.expert == 1) && !(layout.dispatcher != 0 && of_experts == 1);
}

std::vector<ExpertLayout> all_layouts_with_experts() {
  std::vector<ExpertLayout> all;
  for (const int64_t tensor : {1, 2})
    for (const int64_t context : {1, 2})
      for (const int64_t pipeline : {1, 2})
        for (const int64_t data : {1, 2, 4})
          for (const int64_t expert : {1, 2, 4})
            for (const int64_t expert_tensor : {1, 2})
              for (const int64_t dispatcher : {0, 1, 2})
                for (int bits = 0; bits < 8; ++bits)
                  for (int64_t schedule = 0; schedule < (pipeline > 1 ? 4 : 1); ++schedule)
                    for (int64_t recompute = 0; recompute < 3; ++recompute)
                      if (const ExpertLayout layout{tensor, context, pipeline, data, expert, expert_tensor, dispatcher,
                                                    (bits & 4) != 0, (bits & 1) != 0, (bits & 2) != 0, schedule,
                                                    recompute};
                          is_of_use(layout))
                        all.push_back(layout);
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

/// A bound on rows changes nothing in training but how often a step is computed.
struct BoundedRun {
  std::vector<double> values;  // loss, gradient norm and loss scale of each step, then a weight of each parameter
  int64_t num_repeated = 0;
};

BoundedRun bounded_run(const std::string& words, int num_ranks) {
  BoundedRun run;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    BoundedRun own;
    for (int step = 0; step < 3; ++step) {
      const TrainStepResult result = trainer.train_step(batches_of(trainer.config(), step, trainer.groups().dp.rank()));
      own.values.insert(own.values.end(),
                        {result.loss.mean(), result.optimizer.grad_norm, trainer.optimizer().loss_scale()});
      EXPECT_FALSE(result.optimizer.overflow);
      own.num_repeated += result.was_repeated ? 1 : 0;
    }
    for (const Parameter* parameter : trainer.model().parameters())
      own.values.push_back(values_of(parameter->value())[0]);
    if (trainer.groups().world.rank() == 0) run = own;
  });
  return run;
}

/// One step computes twice where tokens overflow, and what it computes are the bits of a run that has room for all.
TEST(ExpertLayouts, AStepThatOverflowsIsRepeatedWithTheBitsOfAnUnboundedRun) {
  const std::string any = "--num-experts 4 --moe-ffn-hidden-size 20 ";
  const std::string even = any +
                           "--moe-router-topk 2 --moe-router-load-balancing-type global_aux_loss "
                           "--moe-aux-loss-coeff 1e-2 ";
  const std::string all_to_one = any + "--moe-router-topk 1 --moe-router-pre-softmax --moe-router-force-biased 1e4 ";
  const std::string parallel =
      "--expert-model-parallel-size 4 --use-distributed-optimizer --overlap-grad-reduce "
      "--overlap-param-gather --moe-token-dispatcher-type ";
  for (const std::string& experts : {even, all_to_one})
    for (const char* dispatcher : {"allgather", "alltoall"})
      for (const char* precision : {" --fp16 --initial-loss-scale 1024 --loss-scale-window 2", " --bf16"}) {
        const std::string words = llama_like("--lr 1e-3 --num-layers 2 --global-batch-size 8 --micro-batch-size 1 " +
                                             experts + parallel + dispatcher + precision);
        SCOPED_TRACE(words);
        const BoundedRun unbounded = bounded_run(words, 4);
        EXPECT_EQ(unbounded.num_repeated, 0);
        const BoundedRun tight = bounded_run(words + " --moe-expert-rank-capacity-factor 0.9", 4);
        EXPECT_EQ(tight.num_repeated, 3);
        EXPECT_EQ(tight.values, unbounded.values);
        const BoundedRun roomy = bounded_run(words + " --moe-expert-rank-capacity-factor 4", 4);
        EXPECT_EQ(roomy.num_repeated, 0);
        EXPECT_EQ(roomy.values, unbounded.values);
      }
}

TEST(ExpertLayouts, SharedExpertsBesideTheDispatchChangeNoBit) {
  const Layout layouts[] = {
      {"--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall", 2},
      {"--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall --moe-expert-rank-capacity-factor 0.9", 2},
      {"--tensor-model-parallel-size 2 --sequence-parallel --moe-token-dispatcher-type flex "
       "--use-distributed-optimizer",
       2},
      {"--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
       "--moe-token-dispatcher-type alltoall --recompute-granularity selective --recompute-modules shared_experts",
       4},
      {"--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 --expert-model-parallel-size 2 "
       "--moe-token-dispatcher-type alltoall --recompute-granularity selective --recompute-modules moe",
       4}};
  for (const char* precision : {"", "--bf16 "})
    for (const Layout& layout : layouts) {
      SCOPED_TRACE(precision + layout.words);
      const std::string words = model(precision + layout.words);
      EXPECT_EQ(train_layout(words + " --moe-shared-expert-overlap", layout.num_ranks, kSteps),
                train_layout(words, layout.num_ranks, kSteps));
    }
}

const std::vector<Layout> kLayouts = {
    {"", 1},
    {"", 2},
    {" --expert-model-parallel-size 2", 2},
    {" --expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall --use-distributed-optimizer", 4},
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
