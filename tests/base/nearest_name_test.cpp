#include "megatron/base/nearest_name.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using Words = std::vector<std::string>;

TEST(NearestName, CountsSwapsOfNeighboursAsOneEdit) {
  const Words names{"--hidden-size", "--hidden-dropout"};
  EXPECT_EQ(nearest_name("--hiddne-size", names), "--hidden-size");
  EXPECT_EQ(nearest_name("--vocabulary", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("--", names), "");
}

TEST(NearestName, TakesNoUnrelatedNameForItsCommonStart) {
  const Words names{"--num-experts", "--num-layers", "--lr"};
  EXPECT_EQ(nearest_name("--num-epochs", names), "");
  EXPECT_EQ(nearest_name("--tp", names), "");
  EXPECT_EQ(nearest_name("--num-layer", names), "--num-layers");
}

TEST(NearestName, TakesTheOnlyNameThatHasAllWords) {
  const Words names{"--num-attention-heads", "--attention-dropout", "--lr-warmup-iters", "--lr-decay-iters"};
  EXPECT_EQ(nearest_name("--num-heads", names), "--num-attention-heads");
  EXPECT_EQ(nearest_name("--iters_warmup", names), "--lr-warmup-iters");
  EXPECT_EQ(nearest_name("--lr-iters", names), "");  // of two names
  EXPECT_EQ(nearest_name("--heads", names), "");     // a single word fits too much
}

}  // namespace
}  // namespace megatron
