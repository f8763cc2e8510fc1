// Checkpoints between layouts of ranks.
#pragma once

#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "tests/parallel/layout_matrix.h"
#include "tests/parallel/run_record.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {

/// The flags that save to a directory and load from it.
std::string saving(const ScratchDirectory& directory);
std::string loading(const ScratchDirectory& directory);

/// Loads where the words say so, trains to `iteration`, saves where they say so. @return losses.
std::vector<double> continue_to(const std::string& words, const Layout& layout, int64_t iteration);

/// All that one rank loads: weights, what the optimizer keeps, counters. Equal states are equal bits.
struct State {
  std::vector<double> weights, optimizer;
  int64_t iteration = 0, consumed_samples = 0, num_steps = 0, schedule = 0;
  bool operator==(const State&) const = default;
};
State state_of(const std::string& words);

/// Two layouts of one model.
struct LayoutPair {
  LayoutCase from, to;
};
/// Random layouts of the whole matrix.
std::vector<LayoutPair> random_pairs(uint64_t seed, int num_pairs);

/// The second layout loads what the first saved after one step: it must have the same state, bit for bit, and the next
/// loss of one rank to 1e-11. @param one_rank  of two steps.
CaseOutcome reshard(const LayoutPair& pair, OneRankCurves& one_rank);

}  // namespace megatron::testing
