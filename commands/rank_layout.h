// The layout of ranks as text, for `megatron verify layouts --layout`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/mistakes.h"

namespace megatron {

struct RankLayout {
  int64_t tp = 1, pp = 1, dp = 1;  // tensor, pipeline, data parallel ranks
  int64_t cp = 1;                  // context parallel ranks
  int64_t vpp = 1;                 // virtual stages of a pipeline rank
  int64_t ep = 1;                  // ranks that share the experts
  int64_t etp = 0;                 // ranks that share the matrices of an expert; 0: as tp
  int64_t instances = 1;           // instances of the distributed optimizer
  std::string schedule;            // pipeline schedule; empty: 1f1b, interleaved with virtual stages
  std::string cp_type;             // how context-parallel ranks share attention; empty: p2p
  bool sp = false;                 // sequence parallel
  bool dist_opt = false;           // distributed optimizer
  bool overlap = false;            // overlaps reduction of gradients and gathering of weights with compute
  bool recompute = false;          // recomputes every layer in backward

  int64_t num_ranks() const { return tp * pp * dp * cp; }
  bool operator==(const RankLayout&) const = default;
};

/// Reads "tp=2 pp=2 sp dist-opt". Adds errors to `mistakes` and then returns nothing.
std::optional<RankLayout> parse_rank_layout(const std::string& text, Mistakes& mistakes);
/// The same text; "one rank" if there are no settings.
std::string to_string(const RankLayout& layout);
/// All settings with their meanings, for --help.
std::string rank_layout_help();
/// The flags of pretrain_gpt for the layout.
std::vector<std::string> flags_of(const RankLayout& layout);
/// The setting for a layout flag of pretrain_gpt: "tp=" for --tensor-model-parallel-size.
/// Nothing for other flags.
std::optional<std::string> layout_setting_of(const std::string& flag);

/// Replaces flags of pretrain_gpt in a text by layout settings: "tp=2" for "--tensor-model-parallel-size 2".
std::string in_layout_settings(std::string text);

/// All combinations of the settings up to `max_ranks` ranks, also those that do not fit a model.
/// @param has_experts  combines ep and etp too
std::vector<RankLayout> rank_layouts(int64_t max_ranks, bool has_experts = false);
/// A small subset of `layouts` with every pair of values that occurs in `layouts` (pairwise cover).
std::vector<RankLayout> pairwise_cover(const std::vector<RankLayout>& layouts);

}  // namespace megatron
