// Packed documents train as one rank trains them: over context-parallel ranks, and on as many ranks each as they need.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/parallel/layout_run.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 10;
constexpr int64_t kLength = 96;

using Cuts = std::vector<int32_t>;
/// Documents of the samples of a global batch, in turn.
using Mix = std::vector<Cuts>;
const Mix kPadded = {{24, 72}, {48}, {}, {24, 48, 72}};  // divide by twice the ranks, for 2, 3 and 4 of them
const Mix kOfAnyLength = {{1, 7, 50}, {95}, {}, {33, 34, 60}};

std::string documents_model(const std::string& extra) {
  return gpt2_like(
      "--fp64 --lr 1e-3 --seq-length 96 --max-position-embeddings 96 --num-layers 2 --micro-batch-size 1 "
      "--global-batch-size 4 --dataloader-inter-document-masking " +
      extra);
}

void cut_at(const Mix& cuts_of_samples, MicroBatch<int64_t>& batch) {
  batch.cuts.clear();
  batch.cut_ends.clear();
  batch.position_ids.clear();
  for (const Cuts& cuts : cuts_of_samples) {
    batch.cuts.insert(batch.cuts.end(), cuts.begin(), cuts.end());
    batch.cut_ends.push_back(std::ssize(batch.cuts));
    int64_t begin = 0;
    for (int64_t i = 0; i < batch.sequence_length; ++i) {
      if (std::ranges::count(cuts, i) > 0) begin = i;
      batch.position_ids.push_back(i - begin);
    }
  }
}

std::vector<MicroBatch<int64_t>> batches_of_mix(const Trainer& trainer, int64_t step, const Mix& mix) {
  const ProcessGroup& dp = trainer.groups().dp;
  std::vector<MicroBatch<int64_t>> batches = batches_of(trainer.config(), step, dp.rank());
  for (size_t m = 0; m < batches.size(); ++m) {
    Mix own;
    const int64_t b = batches[m].num_samples;
    const int64_t first = (static_cast<int64_t>(m) * dp.size() + dp.rank()) * b;
    for (int64_t sample = first; sample < first + b; ++sample)
      own.push_back(mix[static_cast<size_t>(sample) % mix.size()]);
    cut_at(own, batches[m]);
  }
  return batches;
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

void expect_one_rank(const std::vector<DocumentsLayout>& layouts, const Mix& mix) {
  const Curve expected = train_mix(documents_model(""), 1, mix);
  for (const auto& [words, num_ranks] : layouts)
    expect_same_curve(train_mix(documents_model(words), num_ranks, mix), expected, words);
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

TEST(HybridContextParallelism, TrainsDocumentsAsOneRankDoes) {
  const auto hybrid = [](int most, const std::string& words) {
    return fmt::format("--hybrid-context-parallel --max-seqlen-per-dp-cp-rank {} {}", most, words);
  };
  const std::vector<DocumentsLayout> layouts = {
      {hybrid(48, ""), 2},
      {hybrid(24, "--cp-comm-type all_gather p2p"), 4},
      {hybrid(96, "--micro-batch-size 2"), 2},
      {hybrid(24, "--context-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce"), 8},
      {hybrid(48, "--tensor-model-parallel-size 2 --sequence-parallel"), 4}};
  for (const Mix& mix : {kPadded, kOfAnyLength}) expect_one_rank(layouts, mix);
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
