// One rank that forms the same sums in other orders: how far rounding alone takes a run.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "tests/parallel/layout_run.h"

namespace megatron::testing {

/// One rank whose model has its hidden units and those of its MLPs in an order of `seed`, and which takes the samples
/// of each global batch in another: the same function and the same sums, each in another order. On the CPU, for all
/// precisions but fp16, without dropout, which goes by places.
Curve train_in_order(const std::string& words, uint64_t seed, int num_steps);

/// The last loss by eight orders of summation.
struct OrdersOfSummation {
  double first = 0;  // loss of the first step, in the usual order
  double least = std::numeric_limits<double>::infinity(), most = -least;
  double spread() const { return most - least; }
  double middle() const { return (least + most) / 2; }
};
OrdersOfSummation eight_orders(const std::string& words, int num_steps);

}  // namespace megatron::testing
