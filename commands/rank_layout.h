// How ranks share a model, in the words of `megatron verify layouts --layout`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/mistakes.h"

namespace megatron {

struct RankLayout {
  int64_t tp = 1, pp = 1, dp = 1;  // tensor, pipeline, data parallel ranks
  int64_t vpp = 1;                 // virtual stages of a pipeline rank
  int64_t instances = 1;           // of the distributed optimizer
  std::string schedule;            // of the pipeline; empty: 1f1b, with virtual stages interleaved
  bool sp = false;                 // sequence parallel
  bool dist_opt = false;           // distributed optimizer
  bool overlap = false;            // gradients are reduced, and weights gathered, beside other work
  bool recompute = false;          // every layer's forward once more in backward

  int64_t num_ranks() const { return tp * pp * dp; }
  bool operator==(const RankLayout&) const = default;
};

/// Reads "tp=2 pp=2 sp dist-opt". Adds what is wrong to `mistakes` and returns nothing then.
std::optional<RankLayout> parse_rank_layout(const std::string& text, Mistakes& mistakes);
/// The same words; "one rank" if there are none.
std::string to_string(const RankLayout& layout);
/// The words that there are, each with what it means, for --help.
std::string rank_layout_help();
/// The flags of pretrain_gpt that ask for the layout.
std::vector<std::string> flags_of(const RankLayout& layout);
/// The word that stands for a flag of pretrain_gpt that is about the layout: "tp=" for --tensor-model-parallel-size.
/// Nothing for other flags.
std::optional<std::string> layout_word_of(const std::string& flag);

/// A text about flags of pretrain_gpt in words of a layout: "tp=2" for "--tensor-model-parallel-size 2".
std::string in_layout_words(std::string text);

/// All combinations of the words up to `max_ranks` ranks, also those that do not fit a model.
std::vector<RankLayout> rank_layouts(int64_t max_ranks);
/// Few of `layouts` in which every two values that occur together somewhere in `layouts` occur together too.
std::vector<RankLayout> pairwise_cover(const std::vector<RankLayout>& layouts);

}  // namespace megatron
