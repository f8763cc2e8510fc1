#include "megatron/autograd/parameter.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/testing/linear_chain.h"

namespace megatron::testing {
namespace {

TEST(Parameter, IsReadyOnceWhenItsSegmentsAreClosedAndItsUsesAreOver) {
  LinearChain chain(1);
  Parameter& p = *chain.weights[0];
  int num_ready = 0;
  p.on_ready = [&](Parameter&) { ++num_ready; };
  p.open_segment();
  p.open_segment();
  p.add_use();
  p.close_segment(chain.ctx);
  p.end_use(chain.ctx);
  EXPECT_EQ(num_ready, 0) << "a segment may still use it";
  p.add_use();
  p.close_segment(chain.ctx);
  EXPECT_EQ(num_ready, 0) << "a use is left";
  p.end_use(chain.ctx);
  EXPECT_EQ(num_ready, 1);
  p.finish(chain.ctx);
  EXPECT_EQ(num_ready, 1);
}

TEST(Parameter, AnUnusedOneHasAZeroGradientAtTheEnd) {
  LinearChain chain(1);
  EXPECT_TRUE(std::isnan(chain.gradient(0)[0]));
  chain.weights[0]->finish(chain.ctx);
  EXPECT_TRUE(chain.weights[0]->is_ready());
  EXPECT_EQ(chain.gradient(0), std::vector<double>(9, 0.0));
}

TEST(Parameter, OverwritesWithTheFirstGradientOfAStepAndAddsTheOthers) {
  LinearChain chain(1);
  Parameter& p = *chain.weights[0];
  EXPECT_FALSE(p.grad_target(chain.ctx).accumulate);
  EXPECT_TRUE(p.grad_target(chain.ctx).accumulate);
  p.begin_step();
  EXPECT_FALSE(p.grad_target(chain.ctx).accumulate);
}

TEST(Parameter, RejectsUsesAndGradientsAfterItWasReady) {
  LinearChain chain(1);
  Parameter& p = *chain.weights[0];
  p.finish(chain.ctx);
  EXPECT_THROW(p.add_use(), InternalError);
  EXPECT_THROW(p.grad_target(chain.ctx), InternalError);
}

TEST(Parameter, RejectsTheEndOfAStepWithUsesLeft) {
  LinearChain chain(1);
  chain.weights[0]->add_use();
  EXPECT_THROW(chain.weights[0]->finish(chain.ctx), InternalError);
}

TEST(Parameter, IsNotWrittenWhileItIsLeased) {
  LinearChain chain(1);
  Parameter& p = *chain.weights[0];
  {
    const WeightLease lease = p.acquire(chain.ctx);
    EXPECT_THROW(p.value(), InternalError);
  }
  EXPECT_NO_THROW(p.value());
}

}  // namespace
}  // namespace megatron::testing
