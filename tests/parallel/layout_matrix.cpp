#include "tests/parallel/layout_matrix.h"

#include <fmt/core.h>

#include "megatron/training/verify/covering_set.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

std::vector<size_t> num_values(const LayoutFactors& f) {
  return {f.models.size(),
          f.tensor.size(),
          f.pipeline.size(),
          f.chunks.size(),
          f.data.size(),
          f.sequence_parallel.size(),
          f.distributed_optimizer.size(),
          f.overlaps.size(),
          f.tensor_overlaps.size(),
          f.schedules.size(),
          f.recompute.size(),
          f.micro_batch_sizes.size(),
          f.context.size(),
          f.context_types.size()};
}

/// @param c  which value of each factor.
LayoutCase case_of(const LayoutFactors& f, const std::vector<size_t>& c) {
  return {.sizes = f.models[c[0]],
          .tensor = f.tensor[c[1]],
          .pipeline = f.pipeline[c[2]],
          .chunks = f.chunks[c[3]],
          .data = f.data[c[4]],
          .context = f.context[c[12]],
          .sequence_parallel = f.sequence_parallel[c[5]],
          .distributed_optimizer = f.distributed_optimizer[c[6]],
          .overlaps = f.overlaps[c[7]],
          .tensor_overlaps = f.tensor_overlaps[c[8]],
          .schedule = f.schedules[c[9]],
          .recompute = f.recompute[c[10]],
          .context_type = f.context_types[c[13]],
          .micro_batch_size = f.micro_batch_sizes[c[11]]};
}

bool has_valid_schedule(const LayoutCase& layout) {
  if (layout.pipeline == 1) return layout.chunks == 1 && layout.schedule.empty();
  if (layout.schedule == "zb-v") return layout.chunks == 2;
  return layout.schedule.empty() || layout.chunks == 1;
}

/// Both models have 4 heads.
bool has_valid_context(const LayoutCase& layout) {
  if (layout.context == 1) return layout.context_type.empty();
  if (layout.context_type == "a2a") return 4 / layout.tensor % layout.context == 0;
  return layout.context_type != "a2a+p2p" || (layout.context == 4 && layout.tensor <= 2);
}

bool is_valid(const LayoutCase& layout) {
  return layout.num_ranks() <= 8 && has_valid_context(layout) && (layout.tensor > 1 || !layout.sequence_parallel) &&
         (layout.data * layout.context > 1 || !layout.overlaps) &&
         (layout.sequence_parallel || !layout.tensor_overlaps) && has_valid_schedule(layout);
}

/// Which values the valid cases have.
std::vector<std::vector<size_t>> valid_choices(const LayoutFactors& factors) {
  const std::vector<size_t> sizes = num_values(factors);
  std::vector<std::vector<size_t>> valid;
  std::vector<size_t> choice(sizes.size());
  for (;;) {
    if (is_valid(case_of(factors, choice))) valid.push_back(choice);
    size_t factor = 0;
    while (factor < choice.size() && ++choice[factor] == sizes[factor]) choice[factor++] = 0;
    if (factor == choice.size()) return valid;
  }
}

std::vector<LayoutCase> pairwise_layouts_of(const LayoutFactors& factors) {
  const std::vector<std::vector<size_t>> choices = valid_choices(factors);
  std::vector<FactorValues> rows;
  for (const auto& choice : choices) rows.emplace_back(choice.begin(), choice.end());
  std::vector<LayoutCase> cases;
  for (const size_t row : pairwise_covering_set(rows)) cases.push_back(case_of(factors, choices[row]));
  return cases;
}

/// "Et|t||tL": layers as even as they can be.
std::string even_split(int num_layers, int num_stages) {
  std::string text = "E";
  for (int stage = 0; stage < num_stages; ++stage) {
    if (stage > 0) text += '|';
    const int begin = stage * num_layers / num_stages, end = (stage + 1) * num_layers / num_stages;
    text.append(static_cast<size_t>(end - begin), 't');
  }
  return text + "L";
}

std::string pipeline_words(const LayoutCase& layout) {
  std::string words = fmt::format("--pipeline-model-parallel-size {} ", layout.pipeline);
  const int num_stages = layout.pipeline * layout.chunks,
            num_micro_batches = layout.global_batch() / (layout.micro_batch_size * layout.data);
  if ((layout.sizes.num_layers + 1) % num_stages > 0) {
    words += "--pipeline-model-parallel-layout " + even_split(layout.sizes.num_layers, num_stages) + " ";
  } else {
    words += "--account-for-embedding-in-pipeline-split ";
    if (layout.chunks > 1) words += fmt::format("--num-virtual-stages-per-pipeline-rank {} ", layout.chunks);
  }
  if (!layout.schedule.empty()) words += fmt::format("--pipeline-schedule {} ", layout.schedule);
  const bool is_interleaved = layout.chunks > 1 && layout.schedule.empty();
  if (is_interleaved && num_micro_batches % layout.pipeline > 0)
    words += fmt::format("--microbatch-group-size-per-virtual-pipeline-stage {} ", num_micro_batches);
  return words;
}

}  // namespace

int LayoutCase::global_batch() const {
  const bool is_interleaved = chunks > 1 && schedule.empty();
  const bool is_short = sizes.global_batch / (micro_batch_size * data) < pipeline;
  return sizes.global_batch * (is_interleaved && is_short ? 2 : 1);
}

std::string LayoutCase::model() const {
  const std::string words = fmt::format("{}--lr 1e-3 --num-layers {} --global-batch-size {} {}", precision,
                                        sizes.num_layers, global_batch(), sizes.words);
  return sizes.is_llama ? llama_like(words) : gpt2_like(words);
}

std::string LayoutCase::layout() const {
  std::string words = fmt::format("--tensor-model-parallel-size {} --micro-batch-size {} ", tensor, micro_batch_size);
  if (!recompute.empty()) words += recompute + " ";
  if (context > 1) words += fmt::format("--context-parallel-size {} ", context);
  if (!context_type.empty()) words += fmt::format("--cp-comm-type {} ", context_type);
  if (context_type == "a2a+p2p") words += "--hierarchical-context-parallel-sizes 2 2 ";
  if (pipeline > 1) words += pipeline_words(*this);
  if (sequence_parallel) words += "--sequence-parallel ";
  if (tensor_overlaps) words += "--tp-comm-overlap --tp-comm-overlap-rs-dgrad --tp-comm-overlap-ag-splits 2 ";
  if (distributed_optimizer) words += "--use-distributed-optimizer ";
  if (overlaps) words += "--overlap-grad-reduce --ddp-num-buckets 3 ";
  if (overlaps && distributed_optimizer) words += "--overlap-param-gather ";
  words.pop_back();
  return words;
}

LayoutFactors whole_matrix() {
  const std::string size = "--hidden-size 24 --seq-length 8 --max-position-embeddings 8 ";
  return {.models = {{.name = "gpt2", .words = size + "--ffn-hidden-size 44 "},
                     {.name = "llama", .is_llama = true, .words = size + "--num-query-groups 2 "}},
          .tensor = {1, 2, 4},
          .pipeline = {1, 2, 4},
          .chunks = {1, 2, 3},
          .data = {1, 2, 3},
          .context = {1},
          .sequence_parallel = {false, true},
          .distributed_optimizer = {false, true},
          .overlaps = {false, true},
          .tensor_overlaps = {false},
          .schedules = {"", "gpipe", "zb-h1", "zb-v"},  // "": 1f1b, or interleaved with several chunks
          .recompute = {"", "--recompute-granularity selective --recompute-modules core_attn layernorm mlp",
                        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
                        "--recompute-granularity full --recompute-method block --recompute-num-layers 1"},
          .context_types = {""},
          .micro_batch_sizes = {1, 2}};
}

LayoutFactors context_matrix() {
  LayoutFactors factors = whole_matrix();
  const std::string size = "--hidden-size 24 --seq-length 48 --max-position-embeddings 48 ";
  factors.models = {{.name = "gpt2", .num_layers = 3, .words = size + "--ffn-hidden-size 44 "},
                    {.name = "llama", .is_llama = true, .num_layers = 3, .words = size + "--num-query-groups 2 "}};
  factors.tensor = factors.pipeline = factors.data = {1, 2};
  factors.chunks = {1, 2};
  factors.context = {2, 3, 4, 8};
  factors.context_types = {"", "all_gather", "a2a", "a2a+p2p"};
  return factors;
}

std::vector<LayoutCase> pairwise_layouts() {
  LayoutFactors factors = whole_matrix();
  factors.tensor_overlaps = {false, true};
  return pairwise_layouts_of(factors);
}

std::vector<LayoutCase> pairwise_context_layouts() { return pairwise_layouts_of(context_matrix()); }

std::vector<LayoutCase> all_layouts(const LayoutFactors& factors) {
  std::vector<LayoutCase> cases;
  for (const auto& choice : valid_choices(factors)) cases.push_back(case_of(factors, choice));
  return cases;
}

void expect_one_rank_curves(const std::vector<LayoutCase>& layouts, int num_steps) {
  OneRankCurves one_rank(num_steps);
  for (const LayoutCase& layout : layouts) {
    const std::string words = layout.model() + layout.layout();
    expect_same_curve(train_layout(words, layout.num_ranks(), num_steps), one_rank.of(layout.model()), words);
  }
}

}  // namespace megatron::testing
