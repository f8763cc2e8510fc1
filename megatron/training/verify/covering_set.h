// Few combinations that stand for many: pairwise covering sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace megatron {

/// One value of each factor, as a number.
using FactorValues = std::vector<int64_t>;

/// Few of `rows` in which every two values of two factors occur together that occur together in any row. Greedy: each
/// choice adds as many pairs as possible, the first such row counts. Deterministic.
/// Source: Cohen et al. 1997, The AETG system, IEEE Transactions on Software Engineering 23(7).
/// @return where they are in `rows`, in order of choice.
std::vector<size_t> pairwise_covering_set(const std::vector<FactorValues>& rows);

}  // namespace megatron
