#include "tests/parallel/covering_set.h"

#include <algorithm>
#include <array>
#include <set>

namespace megatron::testing {
namespace {

using Pair = std::array<size_t, 4>;  // factor, value, later factor, value

template <class Visit>
void for_each_pair(const Choice& choice, Visit visit) {
  for (size_t a = 0; a < choice.size(); ++a)
    for (size_t b = a + 1; b < choice.size(); ++b) visit(Pair{a, choice[a], b, choice[b]});
}

}  // namespace

std::vector<Choice> all_choices(const std::vector<size_t>& num_values,
                                const std::function<bool(const Choice&)>& is_valid) {
  std::vector<Choice> all;
  Choice choice(num_values.size());
  for (;;) {
    if (is_valid(choice)) all.push_back(choice);
    size_t factor = 0;
    while (factor < choice.size() && ++choice[factor] == num_values[factor]) choice[factor++] = 0;
    if (factor == choice.size()) return all;
  }
}

std::vector<Choice> pairwise_covering_set(const std::vector<size_t>& num_values,
                                          const std::function<bool(const Choice&)>& is_valid) {
  const std::vector<Choice> all = all_choices(num_values, is_valid);
  std::set<Pair> uncovered;
  for (const Choice& choice : all) for_each_pair(choice, [&](const Pair& pair) { uncovered.insert(pair); });
  std::vector<Choice> chosen;
  while (!uncovered.empty()) {
    const Choice* best = nullptr;
    size_t most = 0;
    for (const Choice& choice : all) {
      size_t num_new = 0;
      for_each_pair(choice, [&](const Pair& pair) { num_new += uncovered.contains(pair); });
      if (num_new <= most) continue;
      best = &choice;
      most = num_new;
    }
    chosen.push_back(*best);
    for_each_pair(*best, [&](const Pair& pair) { uncovered.erase(pair); });
  }
  return chosen;
}

}  // namespace megatron::testing
