#include "tests/parallel/layout_matrix.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr int kGlobalBatch = 24;
constexpr std::array kTensor = {1, 2, 4}, kPipeline = {1, 2, 4}, kChunks = {1, 2, 3}, kData = {1, 2, 3};
constexpr std::array kSchedules = {"", "gpipe", "zb-h1", "zb-v"};  // "": 1f1b, or interleaved with several chunks
constexpr std::array kRecompute = {"", "--recompute-granularity selective --recompute-modules core_attn layernorm mlp",
                                   "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
                                   "--recompute-granularity full --recompute-method block --recompute-num-layers 1"};
const std::vector<size_t> kNumValues = {
    2, kTensor.size(), kPipeline.size(), kChunks.size(), kData.size(), 2, 2, 2, kSchedules.size(), kRecompute.size(),
    2};

LayoutCase case_of(const Choice& c) {
  return {.is_llama = c[0] == 1,
          .tensor = kTensor[c[1]],
          .pipeline = kPipeline[c[2]],
          .chunks = kChunks[c[3]],
          .data = kData[c[4]],
          .sequence_parallel = c[5] == 1,
          .distributed_optimizer = c[6] == 1,
          .overlaps = c[7] == 1,
          .schedule = kSchedules[c[8]],
          .recompute = kRecompute[c[9]],
          .micro_batch_size = static_cast<int>(c[10]) + 1};
}

bool has_valid_schedule(const LayoutCase& layout) {
  if (layout.pipeline == 1) return layout.chunks == 1 && layout.schedule.empty();
  if (layout.schedule == "zb-v") return layout.chunks == 2;
  if (!layout.schedule.empty()) return layout.chunks == 1;
  const int num_micro_batches = kGlobalBatch / (layout.micro_batch_size * layout.data);
  return layout.chunks == 1 || num_micro_batches % layout.pipeline == 0;
}

bool is_valid(const Choice& choice) {
  const LayoutCase layout = case_of(choice);
  return layout.num_ranks() <= 8 && (layout.tensor > 1 || !layout.sequence_parallel) &&
         (layout.data > 1 || !layout.overlaps) && has_valid_schedule(layout);
}

std::vector<LayoutCase> cases_of(const std::vector<Choice>& choices) {
  std::vector<LayoutCase> cases;
  for (const Choice& choice : choices) cases.push_back(case_of(choice));
  return cases;
}

}  // namespace

int LayoutCase::num_layers() const {
  const int num_stages = pipeline * chunks;
  return num_stages == 1 ? 7 : (8 + num_stages - 1) / num_stages * num_stages - 1;
}

std::string LayoutCase::model() const {
  const std::string size = fmt::format("--fp64 --lr 1e-3 --num-layers {} --hidden-size 24 --global-batch-size {} ",
                                       num_layers(), kGlobalBatch);
  return is_llama ? llama_like(size + "--num-query-groups 2 ") : gpt2_like(size + "--ffn-hidden-size 44 ");
}

std::string LayoutCase::layout() const {
  std::string words =
      fmt::format("--tensor-model-parallel-size {} --pipeline-model-parallel-size {} --micro-batch-size {} {} ", tensor,
                  pipeline, micro_batch_size, recompute);
  if (pipeline > 1) words += "--account-for-embedding-in-pipeline-split ";
  if (chunks > 1) words += fmt::format("--num-virtual-stages-per-pipeline-rank {} ", chunks);
  if (!schedule.empty()) words += fmt::format("--pipeline-schedule {} ", schedule);
  if (sequence_parallel) words += "--sequence-parallel ";
  if (distributed_optimizer) words += "--use-distributed-optimizer ";
  if (overlaps) words += "--overlap-grad-reduce --ddp-num-buckets 3 ";
  if (overlaps && distributed_optimizer) words += "--overlap-param-gather ";
  return words;
}

std::vector<LayoutCase> pairwise_layouts() { return cases_of(pairwise_covering_set(kNumValues, is_valid)); }
std::vector<LayoutCase> all_layouts() { return cases_of(all_choices(kNumValues, is_valid)); }

void expect_one_rank_curves(const std::vector<LayoutCase>& layouts, int num_steps) {
  std::map<std::string, Curve> one_rank;
  for (const LayoutCase& layout : layouts) {
    const auto [expected, is_new] = one_rank.try_emplace(layout.model());
    if (is_new) expected->second = train_layout(layout.model(), 1, num_steps);
    const std::string words = layout.model() + layout.layout();
    expect_same_curve(train_layout(words, layout.num_ranks(), num_steps), expected->second, words);
  }
}

}  // namespace megatron::testing
