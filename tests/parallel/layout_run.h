// A few training steps on a layout of ranks, and what must not depend on the layout.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "megatron/training/trainer.h"

namespace megatron::testing {

/// Of each step: the loss and the gradient norm, which all ranks have alike.
struct Curve {
  std::vector<double> losses, grad_norms;
  bool operator==(const Curve&) const = default;
};

/// What a rank does with its trainer.
using RankFunction = std::function<void(Trainer&)>;

/// Trainers of a command line (small_trainer.h) on `num_ranks` threads. @throw RankFailure as run_rank_threads.
void run_layout(const std::string& words, int num_ranks, const RankFunction& function);

/// `num_steps` steps from the initial weights. Expects the same numbers on every rank.
Curve train_layout(const std::string& words, int num_ranks, int num_steps);

/// Losses are within 1e-11 and norms within 1e-10 of each other, in fp64, at --lr 1e-3: rounding, which ten steps
/// amplify. A wrong scale, a missing sum or another dropout mask differ by more than 1e-6.
void expect_same_curve(const Curve& actual, const Curve& expected, const std::string& what);

}  // namespace megatron::testing
