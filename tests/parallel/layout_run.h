// A few training steps on a layout of ranks, and what must not depend on the layout.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatron/training/trainer.h"
#include "tests/testing/faulty_group.h"

namespace megatron::testing {

/// The loss and the gradient norm of each step, which are equal on all ranks.
struct Curve {
  std::vector<double> losses, grad_norms;
  bool operator==(const Curve&) const = default;
};

/// One collective of a group that goes wrong on every rank.
struct GroupFault {
  std::function<ProcessGroup&(ProcessGroupCollection&)> group;  // empty: no fault
  Fault fault = Fault::kDropped;
  int64_t number = 0;  // of the collectives of the group
};

/// The flags that a layout adds to the command line of one rank.
struct Layout {
  std::string words;
  int num_ranks = 1;
};

/// The work of a rank with its trainer.
using RankFunction = std::function<void(Trainer&)>;

/// Trainers of a command line (small_trainer.h) on `num_ranks` threads. @throw RankFailure as run_rank_threads.
void run_layout(const std::string& words, int num_ranks, const RankFunction& function, const GroupFault& fault = {});

/// `num_steps` steps from the initial weights, as each rank sees them.
std::vector<Curve> curves_of_ranks(const std::string& words, int num_ranks, int num_steps,
                                   const GroupFault& fault = {});
/// The same; expects that all ranks see the same.
Curve train_layout(const std::string& words, int num_ranks, int num_steps);

/// The curves of models on one rank, each trained once.
class OneRankCurves {
 public:
  explicit OneRankCurves(int num_steps) : num_steps_(num_steps) {}
  const Curve& of(const std::string& model);

 private:
  int num_steps_;
  std::map<std::string, Curve> curves_;
};

/// The largest of all steps; infinite for what is not a number, and for another number of steps.
struct Departure {
  double loss = 0, grad_norm = 0;
};
Departure departure(const Curve& actual, const Curve& expected);

/// Empty if losses are within 1e-11 and norms within 1e-10 of each other, which is what rounding in fp64 makes of ten
/// steps at --lr 1e-3; else the first step that departs. A wrong scale, a missing sum or another dropout mask depart by
/// more than 1e-6.
std::string difference(const Curve& actual, const Curve& expected);
void expect_same_curve(const Curve& actual, const Curve& expected, const std::string& what);

}  // namespace megatron::testing
