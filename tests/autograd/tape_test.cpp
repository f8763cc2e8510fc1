#include "megatron/autograd/tape.h"

#include <gtest/gtest.h>

#include "megatron/ops/add.h"
#include "tests/testing/linear_chain.h"

namespace megatron::testing {
namespace {

TEST(Tape, RecordsAndCountsNothingInEvaluation) {
  LinearChain chain(1);
  const Tensor x = chain.watched("x");
  chain.ctx.mode = GradMode::kOff;  // the tape is still set: a frozen teacher between a student's layers
  EXPECT_FALSE(chain.layer(chain.ctx, x, 0).slot.is_recorded());
  EXPECT_TRUE(chain.tape.is_done());
  chain.weights[0]->finish(chain.ctx);
}

TEST(Tape, AddsUpRootsAndSeedsOfOneRoot) {
  const auto gradient = [](const std::vector<std::vector<std::string>>& seeds) {
    LinearChain chain(2);
    const Tensor x = chain.watched("x");
    const Tensor a = chain.layer(chain.ctx, x, 0), b = chain.layer(chain.ctx, x, 1);
    for (const std::string& name : seeds[0]) chain.tape.seed(chain.ctx, a.slot, chain.tensor(name));
    for (const std::string& name : seeds[1]) chain.tape.seed(chain.ctx, b.slot, chain.tensor(name));
    chain.tape.backward(chain.ctx, Phase::kBW, 0);
    return values_of(chain.tape.take_gradient(x.slot));
  };
  const auto first = gradient({{"g"}, {}}), second = gradient({{}, {"h"}}), both = gradient({{"g"}, {"h"}});
  const auto twice = gradient({{"g", "g"}, {}});
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(both[i], second[i] + first[i]) << i;
    EXPECT_EQ(twice[i], 2 * first[i]) << i;
  }
}

TEST(Tape, DoesNotWriteAGradientThatTwoSlotsShare) {
  LinearChain chain(1);
  const Tensor a = chain.watched("a"), b = chain.watched("b");
  const Tensor sum = add(chain.ctx, a, b), again = add(chain.ctx, sum, a);  // dy goes to sum, a and b; a gets it twice
  const Tensor dy = chain.tensor("dy");
  chain.tape.seed(chain.ctx, again.slot, dy);
  chain.tape.backward(chain.ctx, Phase::kBW, 0);
  const auto da = values_of(chain.tape.take_gradient(a.slot)), db = values_of(chain.tape.take_gradient(b.slot));
  const auto expected = values_of(dy);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(da[i], 2 * expected[i]);
    EXPECT_EQ(db[i], expected[i]);
  }
}

TEST(Tape, CountsDownTheUsesOfADeadBranch) {
  LinearChain chain(2);
  const Tensor x = chain.watched("x");
  chain.layer(chain.ctx, x, 1);  // unused
  const Tensor y = chain.layer(chain.ctx, x, 0);
  chain.tape.seed(chain.ctx, y.slot, chain.tensor("dy"));
  chain.tape.backward(chain.ctx, Phase::kB, 0);
  EXPECT_TRUE(chain.weights[1]->is_ready()) << "its uses are over with B";
  EXPECT_FALSE(chain.weights[0]->is_ready());
  chain.tape.backward_weight(chain.ctx, 0);
  EXPECT_TRUE(chain.weights[0]->is_ready());
  EXPECT_EQ(chain.gradient(1), std::vector<double>(9, 0.0));
}

/// Three segments of one layer each.
Tensor forward_in_segments(LinearChain& chain, const Tensor& x) {
  Tensor now = x;
  for (size_t s = 0; s < 3; ++s) {
    chain.tape.mark_segment({{"x", now}});
    now = chain.layer(chain.ctx, now, s);
  }
  return now;
}

TEST(Tape, WeightGradientsOfSegmentsRunSeparatelyAfterBOfAll) {
  LinearChain chain(3);
  const Tensor y = forward_in_segments(chain, chain.watched("x"));
  chain.tape.seed(chain.ctx, y.slot, chain.tensor("dy"));
  chain.tape.backward(chain.ctx, Phase::kB, 0);
  for (size_t s = 3; s-- > 0;) {
    chain.tape.backward_weight(chain.ctx, s);
    for (size_t w = 0; w < 3; ++w) EXPECT_EQ(chain.weights[w]->is_ready(), w >= s) << "segment " << s;
  }
  EXPECT_TRUE(chain.tape.is_done());
}

TEST(Tape, WeightGradientsOfARangeLeaveTheOthersInTheQueue) {
  LinearChain chain(3);
  const Tensor y = forward_in_segments(chain, chain.watched("x"));
  chain.tape.seed(chain.ctx, y.slot, chain.tensor("dy"));
  chain.tape.backward(chain.ctx, Phase::kB, 0);
  chain.tape.backward_weight(chain.ctx, 1, 2);
  for (size_t w = 0; w < 3; ++w) EXPECT_EQ(chain.weights[w]->is_ready(), w == 1) << "weight " << w;
  chain.tape.backward_weight(chain.ctx, 0);
  EXPECT_TRUE(chain.tape.is_done());
}

TEST(Tape, BackwardInPiecesGivesTheSameBits) {
  const auto gradients = [](const std::vector<size_t>& pieces) {
    LinearChain chain(3);
    const Tensor x = chain.watched("x"), y = forward_in_segments(chain, x);
    chain.tape.seed(chain.ctx, y.slot, chain.tensor("dy"));
    for (size_t first : pieces) chain.tape.backward(chain.ctx, Phase::kBW, first);
    return std::vector{chain.gradient(0), chain.gradient(1), chain.gradient(2),
                       values_of(chain.tape.take_gradient(x.slot))};
  };
  EXPECT_EQ(gradients({0}), gradients({2, 1, 0}));
  EXPECT_EQ(gradients({0}), gradients({1, 0}));
}

TEST(Tape, RejectsAGradientThatCrossesABorderOutsideItsPayload) {
  LinearChain chain(2);
  const Tensor x = chain.watched("x");
  chain.tape.mark_segment({{"x", x}});
  const Tensor hidden = chain.layer(chain.ctx, x, 0);
  chain.tape.mark_segment({});  // hidden is not named
  const Tensor y = chain.layer(chain.ctx, hidden, 1);
  chain.tape.seed(chain.ctx, y.slot, chain.tensor("dy"));
  EXPECT_THROW(chain.tape.backward(chain.ctx, Phase::kBW, 1), InternalError);
}

TEST(Tape, RejectsTensorsOfAnotherTapeAndOfAnotherDevice) {
  LinearChain chain(1), other(1);
  Tape second(chain.test.device);
  Tensor stray = chain.tensor("x"), foreign = other.watched("x");
  second.watch(stray);
  EXPECT_THROW(chain.layer(chain.ctx, stray, 0), InternalError);
  EXPECT_THROW(chain.layer(chain.ctx, foreign, 0), InternalError);
}

}  // namespace
}  // namespace megatron::testing
