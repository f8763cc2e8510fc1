#include "megatron/pipeline_parallel/pipeline_layout.h"

#include <algorithm>
#include <set>
#include <utility>

#include "megatron/base/word_list.h"
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

TiedCopy TieGroup::copy_of(int rank) const {
  const auto own = std::ranges::find(holders, rank);
  if (own == holders.end()) return {};
  return {.group = name, .holder = own - holders.begin(), .num_holders = std::ssize(holders)};
}

TieGroup PipelineLayout::word_embeddings(bool shares_output_weights) const {
  std::set<int> holders;
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const StageLayers& layers = stages_[stage];
    if (layers.has_embedding || layers.num_mtp_layers > 0 || (layers.has_head && shares_output_weights))
      holders.insert(placement_.place_of(static_cast<int>(stage)).rank);
  }
  return {.name = "word_embeddings", .holders = {holders.begin(), holders.end()}};
}

int64_t PipelineLayout::num_layers() const { return stages_.back().first_layer + stages_.back().num_layers; }

namespace {

// Texts name the flags, so that the user can follow them.
constexpr const char* kFirst = "--decoder-first-pipeline-num-layers";
constexpr const char* kLast = "--decoder-last-pipeline-num-layers";
constexpr const char* kEmbedding = "--account-for-embedding-in-pipeline-split";
constexpr const char* kLoss = "--account-for-loss-in-pipeline-split";

constexpr int64_t kLargestNumber = 2147483647;  // of a flag

std::vector<std::string_view> account_flags(const LayerSplit& split) {
  std::vector<std::string_view> flags;
  if (split.account_for_embedding) flags.emplace_back(kEmbedding);
  if (split.account_for_loss) flags.emplace_back(kLoss);
  return flags;
}

/// All given flags that a layout string replaces.
std::vector<std::string_view> split_flags(const LayerSplit& split) {
  std::vector<std::string_view> flags = split.chunk_flags;
  if (split.first_rank_layers) flags.emplace_back(kFirst);
  if (split.last_rank_layers) flags.emplace_back(kLast);
  for (const std::string_view flag : account_flags(split)) flags.push_back(flag);
  return flags;
}

/// The layers of the ranks between the first and the last, and the number of their chunks.
struct Rest {
  int64_t layers, shares;
};
Rest rest_of(const LayerSplit& split) {
  const int own_ranks = (split.first_rank_layers ? 1 : 0) + (split.last_rank_layers ? 1 : 0);
  return {split.num_layers + (split.account_for_embedding ? 1 : 0) + (split.account_for_loss ? 1 : 0) -
              split.first_rank_layers.value_or(0) - split.last_rank_layers.value_or(0),
          int64_t{split.placement.num_ranks() - own_ranks} * split.placement.num_chunks()};
}

/// `count` layers of a first or last rank must be shared by its chunks; else takes the next number that is.
void check_own_count(std::optional<int64_t>& count, const char* flag, int num_chunks, Mistakes& mistakes) {
  if (!count) return;
  const int64_t given = *count;
  if (given < 1)
    mistakes.add({flag}, "{} {}: give at least 1", flag, given);
  else if (given % num_chunks != 0)
    mistakes.add({flag}, "{} {} does not divide by the {} virtual stages of a rank: give {} {}", flag, given,
                 num_chunks, flag, (given / num_chunks + 1) * num_chunks);
  count = (std::max<int64_t>(given - 1, 0) / num_chunks + 1) * num_chunks;
}

/// Rejects, and removes, counts that contradict each other or that name more ranks than there are.
void check_ways(LayerSplit& split, Mistakes& mistakes) {
  if ((split.first_rank_layers || split.last_rank_layers) && (split.account_for_embedding || split.account_for_loss)) {
    mistakes.add({kFirst, kLast},
                 "{} and {} exclude {} and {}: both say how the first and last rank differ. Leave out {}", kFirst,
                 kLast, kEmbedding, kLoss, word_list(account_flags(split)));
    split.account_for_embedding = split.account_for_loss = false;
  }
  if (split.first_rank_layers && split.last_rank_layers && split.placement.num_ranks() == 1) {
    mistakes.add({kFirst, kLast}, "{} and {} name two ranks, but there is one: leave out {} and {}", kFirst, kLast,
                 kFirst, kLast);
    split.first_rank_layers = split.last_rank_layers = std::nullopt;
  }
}

/// The stages that share the rest, and the flags that their number comes from.
std::string describe_shares(const LayerSplit& split, int64_t shares) {
  const int num_ranks = split.placement.num_ranks(), num_chunks = split.placement.num_chunks();
  const bool of_all_ranks = !split.first_rank_layers && !split.last_rank_layers;
  const std::string chunks = num_chunks == 1 ? "" : fmt::format(" * {} virtual stages of a rank", num_chunks);
  return fmt::format("{} {}stage{} (--pipeline-model-parallel-size {}{}{})", shares, num_chunks == 1 ? "" : "virtual ",
                     shares == 1 ? "" : "s", num_ranks, chunks, of_all_ranks ? "" : ", less those");
}

void check_rest(const LayerSplit& split, Mistakes& mistakes) {
  const auto [rest, shares] = rest_of(split);
  const int64_t wanted = shares == 0 ? 0 : std::max((rest + shares / 2) / shares, int64_t{1}) * shares;
  if (rest == wanted) return;
  const bool given = split.first_rank_layers || split.last_rank_layers;
  const bool accounted = split.account_for_embedding || split.account_for_loss;
  const int64_t number = split.num_layers + wanted - rest;
  const bool has_number = !split.num_layers_sets_chunks && number <= kLargestNumber;
  const std::string advice =
      fmt::format("{}{}", has_number ? fmt::format("give --num-layers {}, or ", number) : "", layout_advice(split));
  if (shares == 0)
    mistakes.add({"--num-layers"}, "--num-layers {} must be the sum of {} {} and {} {}, which are all ranks: {}",
                 split.num_layers, kFirst, split.first_rank_layers.value_or(0), kLast,
                 split.last_rank_layers.value_or(0), advice);
  else if (given && rest < shares)
    mistakes.add(
        {"--num-layers"},
        "--num-layers {} has too few for the other ranks, whose {} virtual stages need a layer each beside {} {} "
        "and {} {}: {}",
        split.num_layers, shares, kFirst, split.first_rank_layers.value_or(0), kLast,
        split.last_rank_layers.value_or(0), advice);
  else
    mistakes.add({"--num-layers"}, "{} layers ({}--num-layers {}{}) do not divide by {}: {}", rest,
                 accounted ? "embedding and loss if they count, and " : "", split.num_layers,
                 given ? ", less the first and last rank's" : "", describe_shares(split, shares), advice);
}

/// `num_layers` over `num_shares`: later ones take one more.
int64_t even_share(int64_t num_layers, int64_t num_shares, int64_t share) {
  return num_layers / num_shares + (share >= num_shares - num_layers % num_shares ? 1 : 0);
}

}  // namespace

PipelineLayout split_layers(const LayerSplit& split) {
  Mistakes mistakes;
  const std::optional<PipelineLayout> layout = split_layers(split, mistakes);
  mistakes.throw_if_any("the layers cannot be split over the pipeline");
  return *layout;
}

std::optional<PipelineLayout> split_layers(const LayerSplit& split, Mistakes& all_mistakes) {
  const int v = split.placement.num_chunks();
  LayerSplit advised = split;  // the advice so far
  Mistakes mistakes;
  if (split.num_layers < 1) mistakes.add({"--num-layers"}, "--num-layers {}: give at least 1", split.num_layers);
  check_ways(advised, mistakes);
  check_own_count(advised.first_rank_layers, kFirst, v, mistakes);
  check_own_count(advised.last_rank_layers, kLast, v, mistakes);
  if (split.num_layers >= 1) check_rest(advised, mistakes);
  for (const std::string& text : mistakes.texts())
    all_mistakes.add({"--num-layers", "--pipeline-model-parallel-size", kFirst, kLast}, "{}", text);
  if (!mistakes.empty()) return std::nullopt;

  const auto [rest, shares] = rest_of(split);
  std::vector<int64_t> counts;
  for (int stage = 0; stage < split.placement.num_stages(); ++stage) {
    const int rank = split.placement.place_of(stage).rank;
    if (split.first_rank_layers && rank == 0)
      counts.push_back(*split.first_rank_layers / v);
    else if (split.last_rank_layers && rank == split.placement.num_ranks() - 1)
      counts.push_back(*split.last_rank_layers / v);
    else
      counts.push_back(rest / shares);
  }
  if (split.account_for_embedding) --counts.front();
  if (split.account_for_loss) --counts.back();
  return PipelineLayout(split.placement, counts);
}

PipelineLayout nearest_layout(const LayerSplit& split) {
  const StagePlacement& placement = split.placement;
  const auto &first = split.first_rank_layers, &last = split.last_rank_layers;
  const auto [rest, shares] = rest_of(
      {.num_layers = split.num_layers, .placement = placement, .first_rank_layers = first, .last_rank_layers = last});
  const bool fits = shares > 0 ? rest >= 0 : shares == 0 && rest == 0;
  if (!fits || (!first && !last))
    return balanced_layout(
        split.num_layers, placement,
        {.embedding = split.account_for_embedding ? 1.0 : 0.0, .head = split.account_for_loss ? 1.0 : 0.0});
  const int64_t v = placement.num_chunks();
  std::vector<int64_t> counts;
  for (int stage = 0; stage < placement.num_stages(); ++stage) {
    const StagePlace place = placement.place_of(stage);
    const bool is_first = first && place.rank == 0, is_last = last && place.rank == placement.num_ranks() - 1;
    const int64_t of_rank = is_first  ? *first
                            : is_last ? *last
                                      : even_share(rest, shares / v, place.rank - (first ? 1 : 0));
    counts.push_back(even_share(of_rank, v, place.chunk));
  }
  return PipelineLayout(placement, counts);
}

std::string layout_advice(const LayerSplit& split) {
  constexpr int64_t kMostStages = 4096;  // of a layout that is readable
  const std::vector<std::string_view> flags = split_flags(split);
  std::string leave_out = flags.empty() ? "" : fmt::format("leave out {}", word_list(flags));
  LayerSplit advised = split;
  const int64_t p = split.placement.num_ranks(), v = split.placement.num_chunks();
  if (p * v > split.num_layers && split.placement.order() == StageOrder::kLoop)  // chunks without a layer are useless
    advised.placement = {static_cast<int>(p), static_cast<int>(std::clamp<int64_t>(split.num_layers / p, 1, v))};
  const int64_t num_stages = p * advised.placement.num_chunks();
  if (num_stages > kMostStages) return fmt::format("choose --pipeline-model-parallel-size {}", split.num_layers);
  if (num_stages == 1) return leave_out;  // it has all layers anyway
  return fmt::format("{}{}give --pipeline-model-parallel-layout '{}'", leave_out, flags.empty() ? "" : " and ",
                     to_string(nearest_layout(advised)));
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
