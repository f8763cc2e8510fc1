// Packed documents train as one rank trains them: over context-parallel ranks, and on as many ranks each as they need.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "megatron/training/planning/step_plan.h"
#include "tests/parallel/document_mix.h"
#include "tests/parallel/layout_run.h"
#include "tests/testing/rank_places.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kLength = 96;

const Mix kPadded = {{24, 72}, {48}, {}, {24, 48, 72}};  // divide by twice the ranks, for 2, 3 and 4 of them
const Mix kOfAnyLength = {{1, 7, 50}, {95}, {}, {33, 34, 60}};

std::string documents_model(const std::string& extra) {
  return gpt2_like(
      "--fp64 --lr 1e-3 --seq-length 96 --max-position-embeddings 96 --num-layers 2 --micro-batch-size 1 "
      "--global-batch-size 4 --dataloader-inter-document-masking " +
      extra);
}

Curve train_mix(const std::string& words, int num_ranks, const Mix& mix) {
  Curve curve;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    for (int step = 0; step < kSteps; ++step) {
      const TrainStepResult result = trainer.train_step(batches_of_mix(trainer, step, mix));
      if (trainer.groups().world.rank() != 0) continue;
      curve.losses.push_back(result.loss.mean());
      curve.grad_norms.push_back(result.optimizer.grad_norm);
    }
  });
  return curve;
}

struct DocumentsLayout {
  std::string words;
  int num_ranks = 1;
};

/// @param model  flags of one rank too
void expect_one_rank(const std::vector<DocumentsLayout>& layouts, const Mix& mix, const std::string& model = "") {
  const Curve expected = train_mix(documents_model(model), 1, mix);
  for (const auto& [words, num_ranks] : layouts)
    expect_same_curve(train_mix(documents_model(model + words), num_ranks, mix), expected, words);
}

TEST(PackedDocuments, OverContextRanksTrainAsOnOneRank) {
  const std::vector<DocumentsLayout> layouts = {
      {"--context-parallel-size 2", 2},
      {"--context-parallel-size 3 --cp-comm-type all_gather p2p", 3},
      {"--context-parallel-size 4 --cp-comm-type a2a --micro-batch-size 2", 4},
      {"--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2", 4},
      {"--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2", 4},
      {"--context-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer", 8}};
  for (const Mix& mix : {kPadded, kOfAnyLength}) expect_one_rank(layouts, mix);
}

std::string hybrid(int most, const std::string& words) {
  return fmt::format("--hybrid-context-parallel --max-seqlen-per-dp-cp-rank {} {}", most, words);
}

TEST(HybridContextParallelism, TrainsDocumentsAsOneRankDoes) {
  const std::vector<DocumentsLayout> layouts = {
      {hybrid(48, ""), 2},
      {hybrid(24, "--cp-comm-type all_gather p2p"), 4},
      {hybrid(96, "--micro-batch-size 2"), 2},
      {hybrid(24, "--context-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce"), 8},
      {hybrid(48, "--tensor-model-parallel-size 2 --sequence-parallel"), 4}};
  for (const Mix& mix : {kPadded, kOfAnyLength}) expect_one_rank(layouts, mix);
}

TEST(HybridContextParallelism, OnAnyNumberOfRanksTrainsAsOneRankDoes) {
  const std::string sharded = "--use-distributed-optimizer";
  expect_one_rank({{hybrid(48, sharded), 3}, {hybrid(24, sharded), 6}}, kOfAnyLength, "--global-batch-size 6 ");
  expect_one_rank({{hybrid(24, sharded), 5}}, kPadded, "--global-batch-size 5 ");
  // Documents of 95 and 25 tokens on two ranks each: the fifth has nothing to do.
  expect_one_rank({{hybrid(120, "--context-parallel-size 5"), 5}}, {{95}},
                  "--seq-length 120 --max-position-embeddings 120 --global-batch-size 1 ");
}

TEST(HybridContextParallelism, TrainsExpertsThatAreNotBalancedAsOneRankDoes) {
  const std::vector<DocumentsLayout> layouts = {
      {hybrid(24, ""), 4},
      {hybrid(48,
              "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
              "--expert-tensor-parallel-size 1 --moe-token-dispatcher-type alltoall"),
       4}};
  expect_one_rank(layouts, kOfAnyLength, "--num-experts 4 --disable-bias-linear --moe-input-jitter-eps 0.01 ");
}

/// Each rank has micro-batches as long as they may be: alone, of two ranks, and of four.
TEST(HybridContextParallelism, TakesTheMemoryThatIsPlannedForAnyDocuments) {
  const Mix longest = {{}, {48}, {24, 48, 72}}, of_tokens = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
  for (const std::string extra :
       {"", "--cp-comm-type all_gather", "--context-parallel-size 4",
        "--eval-iters 0 --global-batch-size 12 --optimizer sgd", "--tensor-model-parallel-size 2 --sequence-parallel"})
    for (const Mix& mix : {longest, of_tokens, kOfAnyLength}) {
      const int num_ranks = extra.find("tensor") != std::string::npos ? 8 : 4;
      run_layout(documents_model(hybrid(24, extra)), num_ranks, [&](Trainer& trainer) {
        for (int step = 0; step < 2; ++step) trainer.train_step(batches_of_mix(trainer, step, mix));
        if (trainer.config().validation.evaluates()) trainer.evaluate(batches_of_mix(trainer, 2, mix));
        const MemoryPlan plan = plan_steps(trainer.config(), trainer.groups().world.rank(), DeviceKind::kCpu,
                                           places_on_hosts_of(num_ranks, num_ranks))
                                    .memory;
        const Arena& arena = trainer.device().arena;
        EXPECT_LE(arena.total().peak, plan.peak) << extra;
        EXPECT_LE(arena.high_water_bytes(), plan.high_water) << extra;
        if (mix != longest) return;
        EXPECT_EQ(arena.total().peak, plan.peak) << extra;
        EXPECT_EQ(arena.high_water_bytes(), plan.high_water) << extra;
      });
    }
}

/// Gradients of a step without dropout, on rank 0.
std::vector<double> gradients_after(const std::string& words, int num_ranks,
                                    const std::vector<MicroBatch<int64_t>>& batches) {
  std::vector<double> gradients;
  run_layout(documents_model("--global-batch-size 1 --attention-dropout 0 --hidden-dropout 0 " + words), num_ranks,
             [&](Trainer& trainer) {
               trainer.train_step(batches);
               if (trainer.groups().world.rank() == 0) gradients = gradients_of(trainer);
             });
  return gradients;
}

TEST(PackedDocuments, HaveTheGradientsOfSeparateSequences) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i <= kLength; ++i) tokens.push_back(i * i % 61);
  for (const Cuts& cuts : {Cuts{24, 72}, Cuts{5, 36, 37}}) {
    std::vector<MicroBatch<int64_t>> separate;
    int32_t begin = 0;
    for (size_t i = 0; i <= cuts.size(); ++i) {
      const int32_t end = i < cuts.size() ? cuts[i] : kLength;
      separate.push_back(sample_of({tokens.begin() + begin, tokens.begin() + end + 1}, {}));
      begin = end;
    }
    const std::vector<double> expected = gradients_after("", 1, separate);
    for (const int size : {1, 2, 3, 4}) {
      const std::string words = fmt::format("--context-parallel-size {}", size);
      const std::vector<double> actual = gradients_after(words, size, {sample_of(tokens, cuts)});
      ASSERT_EQ(actual.size(), expected.size());
      double most = 0;
      for (size_t i = 0; i < expected.size(); ++i) most = std::max(most, std::abs(actual[i] - expected[i]));
      EXPECT_LE(most, tolerance(DType::kFloat64, kLength * 32, 4)) << size << " ranks";
    }
  }
}

TEST(PackedDocuments, OfAnyMixTakeTheSameMemory) {
  for (const std::string words :
       {"", "--context-parallel-size 2", "--context-parallel-size 2 --cp-comm-type all_gather",
        "--context-parallel-size 2 --cp-comm-type a2a"}) {
    std::set<int64_t> bytes;
    for (const Mix& mix : {kPadded, Mix{{4, 8, 12, 16, 20}}, Mix{{92}}}) {
      run_layout(documents_model(words), words.empty() ? 1 : 2, [&](Trainer& trainer) {
        trainer.train_step(batches_of_mix(trainer, 0, mix));
        if (trainer.groups().world.rank() == 0) bytes.insert(trainer.device().arena.high_water_bytes());
      });
    }
    EXPECT_EQ(bytes.size(), 1U) << words;
  }
}

}  // namespace
}  // namespace megatron::testing
