#include "tests/parallel/full_matrix.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "megatron/core/random.h"
#include "tests/parallel/layout_checkpoint.h"
#include "tests/parallel/layout_matrix.h"
#include "tests/parallel/layout_run.h"

namespace megatron::testing {
namespace {

constexpr int kSteps = 10;
constexpr int kNumPairs = 256;

CaseOutcome train_as_one_rank(const LayoutCase& layout, OneRankCurves& one_rank) {
  const Curve& expected = one_rank.of(layout.model());
  const std::vector<Curve> curves = curves_of_ranks(layout.model() + layout.layout(), layout.num_ranks(), kSteps);
  const Departure departs = departure(curves[0], expected);
  CaseOutcome outcome{.loss_error = departs.loss, .grad_norm_error = departs.grad_norm};
  outcome.failure = difference(curves[0], expected);
  for (const Curve& curve : curves)
    if (curve != curves[0]) outcome.failure = "ranks disagree";
  return outcome;
}

void add_layouts(std::vector<MatrixCase>& all, const std::string& group, const LayoutFactors& factors) {
  const auto one_rank = std::make_shared<OneRankCurves>(kSteps);
  for (const LayoutCase& layout : all_layouts(factors))
    all.push_back({.group = group,
                   .name = fmt::format("{} data {} {}", layout.sizes.name, layout.data, layout.layout()),
                   .run = [layout, one_rank] { return train_as_one_rank(layout, *one_rank); }});
}

void add_pairs(std::vector<MatrixCase>& all) {
  const auto one_rank = std::make_shared<OneRankCurves>(2);
  for (const LayoutPair& pair : random_pairs(100, kNumPairs))
    all.push_back({.group = "checkpoints between two layouts",
                   .name = fmt::format("{} data {} {} to data {} {}", pair.from.sizes.name, pair.from.data,
                                       pair.from.layout(), pair.to.data, pair.to.layout()),
                   .run = [pair, one_rank] { return reshard(pair, *one_rank); }});
}

ModelSizes with_heads(int num_heads, int num_groups, int head_size) {
  return {.name = fmt::format("llama {} heads in {} groups", num_heads, num_groups),
          .is_llama = true,
          .num_layers = 3,
          .global_batch = 4,
          .words = fmt::format("--num-attention-heads {} --num-query-groups {} --hidden-size {} --ffn-hidden-size {} "
                               "--qk-layernorm --seq-length 20 --max-position-embeddings 20 ",
                               num_heads, num_groups, num_heads * head_size, num_heads * 7)};
}

/// Each number of heads with the tensor ranks that it is awkward for.
void add_heads(std::vector<MatrixCase>& all) {
  LayoutFactors factors = whole_matrix();
  factors.data = {1, 2};
  factors.chunks = factors.micro_batch_sizes = {1};
  factors.schedules = {""};
  factors.overlaps = {false};
  const std::vector<std::pair<int, ModelSizes>> sizes = {{1, with_heads(5, 5, 8)},
                                                         {5, with_heads(5, 5, 8)},
                                                         {2, with_heads(12, 6, 2)},
                                                         {4, with_heads(8, 2, 4)},
                                                         {4, with_heads(4, 1, 6)}};
  for (const auto& [tensor, model] : sizes) {
    factors.tensor = {tensor};
    factors.models = {model};
    add_layouts(all, "key-value heads 1, 2, 5, 6", factors);
  }
}

/// Without overlap, which changes no bit, as it keeps the order of sums.
LayoutFactors without_overlap() {
  LayoutFactors factors = whole_matrix();
  factors.overlaps = {false};
  return factors;
}

LayoutFactors with_overlap() {
  LayoutFactors factors = whole_matrix();
  factors.overlaps = {true};
  factors.recompute.resize(1);
  return factors;
}

/// Products of tensor-parallel ranks in parts, which change no bit either.
LayoutFactors with_tensor_overlap() {
  LayoutFactors factors = without_overlap();
  factors.tensor_overlaps = {true};
  factors.distributed_optimizer = {true};
  factors.micro_batch_sizes = {1};
  return factors;
}

/// How layers are cut over stages, in every schedule.
LayoutFactors with_43_layers() {
  LayoutFactors factors = whole_matrix();
  factors.models = {
      {.name = "gpt2", .num_layers = 43, .global_batch = 8, .words = "--hidden-size 16 --num-attention-heads 4 "},
      {.name = "llama",
       .is_llama = true,
       .num_layers = 43,
       .global_batch = 8,
       .words = "--hidden-size 16 --num-attention-heads 4 --num-query-groups 2 --ffn-hidden-size 20 "}};
  factors.data = {1, 2};
  factors.pipeline = {2, 4};
  factors.distributed_optimizer = {true};
  factors.overlaps = {false};
  factors.recompute = {"", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2"};
  factors.micro_batch_sizes = {1};
  return factors;
}

/// GPT-2's vocabulary on very small layers, in every schedule: with virtual stages some have no layer.
LayoutFactors with_whole_vocabulary() {
  LayoutFactors factors = whole_matrix();
  const std::string words =
      "--hidden-size 8 --ffn-hidden-size 12 --seq-length 8 --max-position-embeddings 8 --vocab-size 50257 "
      "--make-vocab-size-divisible-by 128 ";
  factors.models = {{.name = "gpt2", .num_layers = 3, .global_batch = 4, .words = words},
                    {.name = "llama", .is_llama = true, .num_layers = 3, .global_batch = 4, .words = words}};
  factors.data = {1, 2};
  factors.chunks = {1, 2};
  factors.micro_batch_sizes = {1};
  factors.overlaps = {false};
  factors.recompute.resize(1);
  return factors;
}

}  // namespace

std::vector<MatrixCase> full_matrix() {
  std::vector<MatrixCase> all;
  add_layouts(all, "every combination", without_overlap());
  add_layouts(all, "overlapped communication", with_overlap());
  add_layouts(all, "overlapped tensor parallelism", with_tensor_overlap());
  add_layouts(all, "43 layers", with_43_layers());
  add_layouts(all, "50257 tokens", with_whole_vocabulary());
  add_heads(all);
  add_pairs(all);
  const RandomKey key = RandomKey::from_seed(3);
  for (size_t i = all.size(); i > 1; --i)
    std::swap(all[i - 1], all[static_cast<size_t>(uniform(key, static_cast<int64_t>(i)) * static_cast<double>(i))]);
  return all;
}

}  // namespace megatron::testing
