#include "megatron/training/profile/profile_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace megatron {
namespace {

int64_t step_ns(const RankTrace& rank) {
  int64_t sum = 0;
  for (const auto& [name, ns] : rank.totals_ns) sum += ns;
  return sum;
}

}  // namespace

std::string profile_table(std::span<const RankTrace> ranks, int64_t num_steps) {
  const RankTrace& first = ranks.front();
  const auto ms = [&](int64_t ns) { return static_cast<double>(ns) / 1e6 / static_cast<double>(num_steps); };
  const double whole = std::max(ms(step_ns(first)), std::numeric_limits<double>::min());
  std::string text =
      fmt::format("{:<34}{:>12}{:>8}{:>12}{:>12}\n", "time of a step, ms", fmt::format("rank {}", first.rank), "%",
                  "least", fmt::format("most of {}", ranks.size()));
  const auto add = [&](std::string_view name, const auto& ns_of) {
    int64_t least = std::numeric_limits<int64_t>::max(), most = std::numeric_limits<int64_t>::min();
    for (const RankTrace& rank : ranks) {
      least = std::min(least, ns_of(rank));
      most = std::max(most, ns_of(rank));
    }
    const double own = ms(ns_of(first));
    text +=
        fmt::format("{:<34}{:>12.3f}{:>8.1f}{:>12.3f}{:>12.3f}\n", name, own, 100 * own / whole, ms(least), ms(most));
  };
  for (size_t i = 0; i < first.totals_ns.size(); ++i)
    add(first.totals_ns[i].first, [i](const RankTrace& rank) { return rank.totals_ns.at(i).second; });
  add("step", step_ns);
  text.pop_back();
  return text;
}

}  // namespace megatron
