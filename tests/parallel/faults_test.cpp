// Mistakes that a parallel trainer could make are seen by the comparison with one rank.
#include <gtest/gtest.h>

#include "tests/parallel/layout_run.h"
#include "tests/testing/faulty_group.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using Group = std::function<ProcessGroup&(ProcessGroupCollection&)>;

const std::string kModel = gpt2_like("--fp64 --lr 1e-3 --num-layers 2 --micro-batch-size 1 --global-batch-size 4 ");
const std::string kTensor = "--tensor-model-parallel-size 2 ";

template <ProcessGroup ProcessGroupCollection::*member>
ProcessGroup& group_of(ProcessGroupCollection& groups) {
  return groups.*member;
}

/// Says whether two steps in which one collective of a group goes wrong are told from those of one rank.
bool is_caught(const std::string& layout, int num_ranks, const Group& group, Fault fault, int64_t number) {
  static const Curve expected = train_layout(kModel, 1, 2);
  const GroupFault of_group{.group = group, .fault = fault, .number = number};
  for (const Curve& curve : curves_of_ranks(kModel + layout, num_ranks, 2, of_group))
    if (!difference(curve, expected).empty()) return true;
  return false;
}

TEST(Faults, OfTheGradientSumAreCaught) {
  for (const std::string layout : {"", "--use-distributed-optimizer"})
    for (const Fault fault : {Fault::kDropped, Fault::kScaled})
      EXPECT_TRUE(is_caught(layout, 2, group_of<&ProcessGroupCollection::intra_dp_cp>, fault, 0)) << layout;
}

TEST(Faults, OfTokenCountAndLossAreCaught) {
  EXPECT_TRUE(is_caught("", 2, group_of<&ProcessGroupCollection::dp_cp>, Fault::kDropped, 0));
  EXPECT_TRUE(is_caught("", 2, group_of<&ProcessGroupCollection::dp_cp>, Fault::kDropped, 1));
  EXPECT_TRUE(is_caught("", 2, group_of<&ProcessGroupCollection::dp_cp>, Fault::kScaled, 1));
}

TEST(Faults, OfTensorParallelSumsAreCaught) {
  for (const std::string way : {"", "--sequence-parallel", "--sequence-parallel --tp-comm-overlap"})
    for (const Fault fault : {Fault::kDropped, Fault::kScaled})
      for (const int64_t number : {0, 1, 2, 9})
        EXPECT_TRUE(is_caught(kTensor + way, 2, group_of<&ProcessGroupCollection::tp>, fault, number)) << way << number;
}

TEST(Faults, OfTheNormAreCaught) {
  EXPECT_TRUE(is_caught("--use-distributed-optimizer", 2, group_of<&ProcessGroupCollection::intra_dist_opt>,
                        Fault::kDropped, 1));
}

TEST(Faults, OfTheTiedEmbeddingAreCaught) {
  for (const Fault fault : {Fault::kDropped, Fault::kScaled})
    EXPECT_TRUE(is_caught(
        "--pipeline-model-parallel-size 2", 2, [](ProcessGroupCollection& g) -> ProcessGroup& { return *g.embd; },
        fault, 0));
}

TEST(Faults, ThatDoNotHappenAreNotCaught) {
  EXPECT_FALSE(is_caught(kTensor, 4, group_of<&ProcessGroupCollection::tp>, Fault::kDropped, 1 << 30));
}

}  // namespace
}  // namespace megatron::testing
