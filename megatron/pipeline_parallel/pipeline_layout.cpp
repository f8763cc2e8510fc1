#include "megatron/pipeline_parallel/pipeline_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "megatron/pipeline_parallel/layout_string.h"

namespace megatron {

PipelineLayout::PipelineLayout(const StagePlacement& placement, const std::vector<int64_t>& num_layers)
    : placement_(placement), stages_(num_layers.size()) {
  require<ConfigError>(std::ssize(num_layers) == placement.num_stages(),
                       "[PipelineLayout] {} stages are given for {} ranks with {} chunks each: give {}.",
                       num_layers.size(), placement.num_ranks(), placement.num_chunks(), placement.num_stages());
  int64_t first = 0;
  for (size_t s = 0; s < stages_.size(); ++s) {
    require<ConfigError>(num_layers[s] >= 0, "[PipelineLayout] stage {} has {} layers; give 0 or more.", s,
                         num_layers[s]);
    stages_[s] = {.first_layer = first, .num_layers = num_layers[s]};
    first += num_layers[s];
  }
  stages_.front().has_embedding = true;
  stages_.back().has_head = true;
}

int64_t PipelineLayout::num_layers() const { return stages_.back().first_layer + stages_.back().num_layers; }

namespace {

// Texts name the flags, so that a message can be acted on.
constexpr const char* kFirst = "--decoder-first-pipeline-num-layers";
constexpr const char* kLast = "--decoder-last-pipeline-num-layers";

/// `count` layers of a first or last rank must be shared by its chunks.
void check_own_count(const std::optional<int64_t>& count, const char* flag, int num_chunks, Mistakes& mistakes) {
  if (!count) return;
  if (*count < 1) mistakes.add({flag}, "{} {}: give at least 1", flag, *count);
  if (*count >= 1 && *count % num_chunks != 0)
    mistakes.add({flag}, "{} {} does not divide by the {} virtual stages of a rank: give {}", flag, *count, num_chunks,
                 (*count / num_chunks + 1) * num_chunks);
}

void check_rest(int64_t rest, int64_t num_shares, const LayerSplit& split, Mistakes& mistakes) {
  const bool given = split.first_rank_layers || split.last_rank_layers;
  const bool accounted = split.account_for_embedding || split.account_for_loss;
  if (num_shares == 0 && rest != 0)
    mistakes.add({"--num-layers"},
                 "--num-layers {} must be the sum of {} {} and {} {}, which are all ranks: give --num-layers {}, or "
                 "other counts",
                 split.num_layers, kFirst, split.first_rank_layers.value_or(0), kLast,
                 split.last_rank_layers.value_or(0), split.num_layers - rest);
  if (num_shares == 0) return;
  if (rest < num_shares || rest % num_shares != 0) {
    const int64_t nearest = std::max((rest + num_shares / 2) / num_shares, int64_t{1}) * num_shares;
    const std::string balanced = to_string(balanced_layout(split.num_layers, split.placement, {}));
    mistakes.add({"--num-layers"},
                 "{} layers ({}--num-layers {}{}) do not divide by {} virtual stages. Give --num-layers {}, or "
                 "instead of counts --pipeline-model-parallel-layout '{}'",
                 rest, accounted ? "embedding and loss if they count, and " : "", split.num_layers,
                 given ? ", less the first and last rank's" : "", num_shares, split.num_layers + nearest - rest,
                 balanced);
  }
}

}  // namespace

PipelineLayout split_layers(const LayerSplit& split) {
  Mistakes mistakes;
  const std::optional<PipelineLayout> layout = split_layers(split, mistakes);
  mistakes.throw_if_any("the layers cannot be split over the pipeline");
  return *layout;
}

std::optional<PipelineLayout> split_layers(const LayerSplit& split, Mistakes& all_mistakes) {
  const int p = split.placement.num_ranks(), v = split.placement.num_chunks();
  const auto &first = split.first_rank_layers, &last = split.last_rank_layers;
  Mistakes mistakes;
  if (split.num_layers < 1) mistakes.add({"--num-layers"}, "--num-layers {}: give at least 1", split.num_layers);
  if ((first || last) && (split.account_for_embedding || split.account_for_loss))
    mistakes.add({kFirst, kLast},
                 "{} and {} exclude --account-for-embedding-in-pipeline-split and "
                 "--account-for-loss-in-pipeline-split: both say how the first and last rank differ",
                 kFirst, kLast);
  check_own_count(first, kFirst, v, mistakes);
  check_own_count(last, kLast, v, mistakes);
  const int shared_ranks = p - (first ? 1 : 0) - (last ? 1 : 0);
  const int64_t rest = split.num_layers + (split.account_for_embedding ? 1 : 0) + (split.account_for_loss ? 1 : 0) -
                       first.value_or(0) - last.value_or(0);
  if (shared_ranks < 0)
    mistakes.add({kFirst, kLast}, "{} and {} name two ranks, but there is one: give one of them or none", kFirst,
                 kLast);
  else if (mistakes.empty())
    check_rest(rest, int64_t{shared_ranks} * v, split, mistakes);
  for (const std::string& text : mistakes.texts())
    all_mistakes.add({"--num-layers", "--pipeline-model-parallel-size", kFirst, kLast}, "{}", text);
  if (!mistakes.empty()) return std::nullopt;

  std::vector<int64_t> counts;
  for (int stage = 0; stage < split.placement.num_stages(); ++stage) {
    const int rank = split.placement.place_of(stage).rank;
    if (first && rank == 0)
      counts.push_back(*first / v);
    else if (last && rank == p - 1)
      counts.push_back(*last / v);
    else
      counts.push_back(rest / (int64_t{shared_ranks} * v));
  }
  if (split.account_for_embedding) --counts.front();
  if (split.account_for_loss) --counts.back();
  return PipelineLayout(split.placement, counts);
}

PipelineLayout balanced_layout(int64_t num_layers, const StagePlacement& placement, const LayerCosts& costs) {
  require<ConfigError>(num_layers >= 0 && costs.layer > 0 && costs.embedding >= 0 && costs.head >= 0,
                       "[balanced_layout] {} layers of cost {}, embedding {}, head {}: layers must cost something, and "
                       "nothing can be negative.",
                       num_layers, costs.layer, costs.embedding, costs.head);
  const auto num_stages = static_cast<size_t>(placement.num_stages());
  std::vector<int64_t> counts(num_stages);
  std::vector<double> stage_costs(num_stages), rank_costs(static_cast<size_t>(placement.num_ranks()));
  const auto charge = [&](size_t stage, double cost) {
    stage_costs[stage] += cost;
    rank_costs[static_cast<size_t>(placement.place_of(static_cast<int>(stage)).rank)] += cost;
  };
  charge(0, costs.embedding);
  charge(num_stages - 1, costs.head);
  // Equal jobs on machines with a load: giving each to the least loaded one is optimal.
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    size_t best = 0;
    for (size_t stage = 1; stage < num_stages; ++stage) {
      const auto load = [&](size_t s) {
        return std::pair(rank_costs[static_cast<size_t>(placement.place_of(static_cast<int>(s)).rank)], stage_costs[s]);
      };
      if (load(stage) <= load(best)) best = stage;
    }
    ++counts[best];
    charge(best, costs.layer);
  }
  return PipelineLayout(placement, counts);
}

}  // namespace megatron
