#include "megatron/training/config/layer_pattern.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Entries = std::vector<int64_t>;

TEST(LayerPattern, ReadsIntervalsAndPythonsLists) {
  EXPECT_EQ(parse_layer_pattern("4"), (LayerPattern{.interval = 4, .per_layer = {}}));
  EXPECT_EQ(parse_layer_pattern("[1, 0,1]").per_layer, (Entries{1, 0, 1}));
  EXPECT_EQ(parse_layer_pattern("([0]*1+[1]*3)").per_layer, (Entries{0, 1, 1, 1}));
  EXPECT_EQ(parse_layer_pattern("([0]+[1]*2)*2").per_layer, (Entries{0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(parse_layer_pattern("2*[0,1]").per_layer, (Entries{0, 1, 0, 1}));
  EXPECT_EQ(parse_layer_pattern("[0]*(2+1)+[1]").per_layer, (Entries{0, 0, 0, 1}));
  EXPECT_EQ(parse_layer_pattern("[0+1,1*0]*2").per_layer, (Entries{1, 0, 1, 0}));
  EXPECT_EQ(parse_layer_pattern("2*3+1").interval, 7);
}

TEST(LayerPattern, RefusesEverythingElse) {
  for (const char* text : {"",
                           "0",
                           "-1",
                           "x",
                           "[0,2]",
                           "[]",
                           "[0",
                           "[0,]",
                           "(1",
                           "[0]+1",
                           "[0]*[1]",
                           "1+",
                           "[0] [1]",
                           "[[0]]",
                           "99999999*99999999",
                           "[0]*100001",
                           "[]*999999999",
                           "[1]*99999999999999999999",
                           "__import__",
                           "1.5"})
    EXPECT_THROW(parse_layer_pattern(text), ConfigError) << text;
  for (const char bracket : {'(', '['}) EXPECT_THROW(parse_layer_pattern(std::string(100000, bracket)), ConfigError);
}

}  // namespace
}  // namespace megatron
