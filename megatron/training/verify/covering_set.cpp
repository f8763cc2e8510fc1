#include "megatron/training/verify/covering_set.h"

#include <array>
#include <set>

namespace megatron {
namespace {

using Pair = std::array<int64_t, 4>;  // factor, value, later factor, value

template <class Visit>
void for_each_pair(const FactorValues& row, Visit visit) {
  for (size_t a = 0; a < row.size(); ++a)
    for (size_t b = a + 1; b < row.size(); ++b)
      visit(Pair{static_cast<int64_t>(a), row[a], static_cast<int64_t>(b), row[b]});
}

}  // namespace

std::vector<size_t> pairwise_covering_set(const std::vector<FactorValues>& rows) {
  std::set<Pair> uncovered;
  for (const FactorValues& row : rows) for_each_pair(row, [&](const Pair& pair) { uncovered.insert(pair); });
  std::vector<size_t> chosen;
  while (!uncovered.empty()) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      size_t num_new = 0;
      for_each_pair(rows[i], [&](const Pair& pair) { num_new += uncovered.contains(pair); });
      if (num_new <= most) continue;
      best = i;
      most = num_new;
    }
    chosen.push_back(best);
    for_each_pair(rows[best], [&](const Pair& pair) { uncovered.erase(pair); });
  }
  return chosen;
}

}  // namespace megatron
