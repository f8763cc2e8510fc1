// Few cases that stand for many: pairwise covering sets.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace megatron::testing {

/// One value of each factor, by number.
using Choice = std::vector<size_t>;

/// Valid choices in which every pair of values of two factors occurs that occurs in any valid choice. Greedy: each
/// choice adds as many pairs as possible, the first such choice counts. Deterministic.
/// @param num_values  of each factor.
std::vector<Choice> pairwise_covering_set(const std::vector<size_t>& num_values,
                                          const std::function<bool(const Choice&)>& is_valid);

/// All valid choices.
std::vector<Choice> all_choices(const std::vector<size_t>& num_values,
                                const std::function<bool(const Choice&)>& is_valid);

}  // namespace megatron::testing
