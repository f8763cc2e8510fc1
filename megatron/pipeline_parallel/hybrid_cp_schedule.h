// Which ranks compute which documents where each document has its own number of context-parallel ranks. Megatron Core:
// core/pipeline_parallel/hybrid_cp_schedule.py (BalancedCPScheduler); the schedules are the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

/// Neighbouring ranks that compute the same documents, one after the other, each over all of these ranks.
struct ContextRankSet {
  int64_t first_rank = 0, num_ranks = 1;
  std::vector<int64_t> documents;  // their numbers
};
/// Sets of different ranks; a rank that is in none has nothing to do. Rounds follow each other.
using ContextRound = std::vector<ContextRankSet>;

/// Documents of a step on ranks. Sets have powers of two of ranks and begin at a multiple of their number, or have all
/// ranks, whose number is any. The cost of a document of n tokens on r ranks is n * n / r, that of its attention.
/// Megatron's scheduler fails where the ranks are no power of two and a document needs more than it has groups for.
class HybridCpScheduler {
 public:
  /// @throw ConfigError unless both are positive.
  HybridCpScheduler(int64_t max_seqlen_per_rank, int64_t num_ranks);

  /// The least power of two of ranks that have at most max_seqlen_per_rank tokens each, or all ranks if they are fewer
  /// and enough.
  int64_t num_ranks_needed(int64_t length) const;
  /// The numbers of ranks that a set may have, ascending.
  std::vector<int64_t> set_sizes() const;
  /// @param lengths  in tokens, one of each document. @return rounds with about as much to do for each rank. Without
  /// idle ranks where their number is a power of two, else with fewer than the smallest set has.
  /// @throw ConfigError for a document that needs more ranks than there are.
  std::vector<ContextRound> rounds(std::span<const int64_t> lengths) const;

 private:
  int64_t max_seqlen_per_rank_, num_ranks_;
};

/// Time of the rounds where a document takes `cost(document, num_ranks)` on each of its ranks, and ranks wait for those
/// with which they share their next one.
template <class Cost>
double simulated_time(const std::vector<ContextRound>& rounds, int64_t num_ranks, Cost&& cost) {
  std::vector<double> time(static_cast<size_t>(num_ranks), 0.0);
  for (const ContextRound& round : rounds)
    for (const ContextRankSet& set : round) {
      const std::span<double> own =
          std::span(time).subspan(static_cast<size_t>(set.first_rank), static_cast<size_t>(set.num_ranks));
      double end = 0;
      for (const double rank : own) end = rank > end ? rank : end;
      for (const int64_t document : set.documents) end += cost(document, set.num_ranks);
      for (double& rank : own) rank = end;
    }
  double last = 0;
  for (const double rank : time) last = rank > last ? rank : last;
  return last;
}

}  // namespace megatron
