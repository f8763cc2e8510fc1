// Which data set of a blend lags most behind its share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

/// Finds, step by step, the data set j with the largest lag weights[j] * max(step, 1) - taken[j], in doubles as they
/// are rounded; of equal ones the first. A kinetic tournament: each inner node of a binary tree holds the winner of its
/// two children and the step until which that certainly stays so, and only nodes whose step has come are played again.
/// A step takes O(log n) instead of O(n). Source: Basch, Guibas and Hershberger 1999, Data Structures for Mobile Data.
class LagTournament {
 public:
  /// @param weights  finite and above 0; at least one. @param num_steps  steps 0 .. num_steps - 1 will be asked for
  LagTournament(std::span<const double> weights, int64_t num_steps);

  /// The data set at this step; steps come in ascending order. One must be left.
  size_t leader(int64_t step);
  /// Takes a sample of the leader of `step`. @return how many had been taken of it
  int64_t take(size_t dataset, int64_t step);
  /// Leaves a data set out from step `step` + 1 on.
  void remove(size_t dataset, int64_t step);

 private:
  double lag(int32_t dataset, int64_t step) const;
  int64_t first_unsure_step(int32_t winner, int32_t loser, int64_t step) const;
  void play(size_t node, int64_t step);
  void play_path(size_t dataset, int64_t step);
  void refresh(size_t node, int64_t step);

  std::vector<double> weights_;
  std::vector<int64_t> taken_;
  double margin_;                      // what rounding can change in a difference of two lags
  size_t num_leaves_;                  // a power of two; leaf j is node num_leaves_ + j, the children of k are 2k, 2k+1
  std::vector<int32_t> winner_;        // of each node; -1: none is left
  std::vector<int64_t> first_unsure_;  // of each node: the step at which one below it must be played again
};

}  // namespace megatron
