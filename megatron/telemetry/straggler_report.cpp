#include "megatron/telemetry/straggler_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace megatron {
namespace {

constexpr double kMs = 1e3, kTeraOperations = 1e12;

/// Ranks from the least to the greatest `value`.
template <class Value>
std::vector<size_t> sorted_by(std::span<const RankWork> ranks, Value value) {
  std::vector<size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t rank) { return value(ranks[rank]); });
  return order;
}

template <class Value>
std::string least_and_most(std::span<const RankWork> ranks, std::string_view what, std::string_view unit, Value value) {
  const std::vector<size_t> order = sorted_by(ranks, value);
  return fmt::format(" Mn{0}/Rnk: {2:.2f}{1}/{3} | Mx{0}/Rnk: {4:.2f}{1}/{5} |", what, unit,
                     value(ranks[order.front()]), order.front(), value(ranks[order.back()]), order.back());
}

/// The phase in which the slowest rank exceeds the median rank most.
std::string_view reason_of(const RankWork& slowest, const RankWork& middle) {
  const auto parts = std::to_array<std::pair<double, std::string_view>>(
      {{slowest.forward + slowest.backward - middle.forward - middle.backward, "computes longer"},
       {slowest.data - middle.data, "waits for its data"},
       {slowest.optimizer - middle.optimizer, "steps its optimizer longer"}});
  return std::ranges::max_element(parts)->second;
}

std::string slowest_line(std::span<const RankWork> ranks, const std::vector<size_t>& order) {
  const RankWork &slowest = ranks[order.back()], &middle = ranks[order[(order.size() - 1) / 2]];
  std::string line = fmt::format(
      "\n straggler: rank {} is slowest, {:.2f} ms of its own work in a step: compute {:.2f}, data {:.2f}, optimizer "
      "{:.2f}; it waits {:.2f} ms for others",
      order.back(), kMs * slowest.own(), kMs * (slowest.forward + slowest.backward), kMs * slowest.data,
      kMs * slowest.optimizer, kMs * slowest.waiting);
  if (ranks.size() > 1 && middle.own() > 0)
    line +=
        fmt::format(". That is {:.1f}% more than the median rank {}: it {}", 100 * (slowest.own() / middle.own() - 1),
                    order[(order.size() - 1) / 2], reason_of(slowest, middle));
  return line;
}

std::string listed(std::span<const RankWork> ranks, std::span<const size_t> order) {
  std::string text;
  for (const size_t rank : order)
    text += fmt::format("{} {} ({:.2f} ms)", text.empty() ? "" : ",", rank, kMs * ranks[rank].own());
  return text;
}

}  // namespace

std::string straggler_report(const StragglerReportOptions& options, std::span<const RankWork> ranks) {
  std::string text = fmt::format(" [{}] |", date_time_microseconds_text(options.time));
  text += least_and_most(ranks, "Rtt", "ms", [](const RankWork& work) { return kMs * work.forward; });
  text += least_and_most(ranks, "DRtt", "ms", [](const RankWork& work) { return kMs * work.data; });
  text += least_and_most(ranks, "Etpt", "TF", [&](const RankWork& work) {
    return work.forward > 0 ? options.forward_operations / work.forward / kTeraOperations : 0;
  });
  std::vector<size_t> order = sorted_by(ranks, [](const RankWork& work) { return work.own(); });
  text += slowest_line(ranks, order);
  if (options.num_listed <= 1) return text;
  const size_t num_listed = std::min(options.num_listed, order.size());
  text += fmt::format("\n fastest ranks:{}", listed(ranks, std::span(order).first(num_listed)));
  std::ranges::reverse(order);
  return text + fmt::format("\n slowest ranks:{}", listed(ranks, std::span(order).first(num_listed)));
}

}  // namespace megatron
