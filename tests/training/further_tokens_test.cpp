// A context-parallel rank's part of a micro-batch with values of further tokens.
#include "megatron/training/further_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/models/gpt/gpt_mtp.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;

/// Two samples of 8 tokens.
OwnedBatch two_samples() {
  return {.num_samples = 2,
          .sequence_length = 8,
          .num_valid_tokens = 15,
          .tensors = {{"tokens", std::vector<int64_t>{10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 23, 24, 25, 26, 27}},
                      {"loss_mask", std::vector<float>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}}},
          .sequences = {{.name = "tokens", .length = 8, .cuts = {}, .cut_ends = {0, 0}, .position_ids = {}}}};
}

template <class T>
std::vector<T> values_of(const OwnedBatch& batch, const std::string& name) {
  for (const OwnedBatch::Values& tensor : batch.tensors)
    if (tensor.name == name) return std::get<std::vector<T>>(tensor.values);
  ADD_FAILURE() << "there is no " << name;
  return {};
}

TEST(FurtherTokens, AreThoseOfTheWholeSampleOnEachRank) {
  const std::vector<OwnedBatch> whole = {two_samples()};
  const OwnedBatch first = parts_with_further_tokens(whole, {.rank = 0, .size = 2}, 1).at(0);  // 0, 1, 6 and 7
  EXPECT_THAT(values_of<int64_t>(first, "tokens"), ElementsAre(10, 11, 16, 17, 20, 21, 26, 27));
  EXPECT_THAT(values_of<int64_t>(first, further_name("tokens", 1)), ElementsAre(11, 12, 17, 0, 21, 22, 27, 0));
  const OwnedBatch second = parts_with_further_tokens(whole, {.rank = 1, .size = 2}, 2).at(0);  // 2 to 5
  EXPECT_THAT(values_of<int64_t>(second, further_name("tokens", 2)), ElementsAre(14, 15, 16, 17, 24, 25, 26, 27));
  EXPECT_THAT(values_of<float>(second, further_name("loss_mask", 1)), ElementsAre(1, 0, 1, 1, 1, 1, 1, 1));
  EXPECT_EQ(second.num_valid_tokens, 7);
}

TEST(FurtherTokens, HaveTheLossMasksOfAllRanksToCount) {
  const std::vector<OwnedBatch> whole = {two_samples()};
  const OwnedBatch own = parts_with_further_tokens(whole, {.rank = 1, .size = 2}, 1).at(0);
  EXPECT_EQ(values_of<float>(own, whole_name("loss_mask")), std::get<std::vector<float>>(whole[0].tensors[1].values));
  EXPECT_THAT(values_of<float>(own, whole_name(further_name("loss_mask", 1))),
              ElementsAre(1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0));
}

}  // namespace
}  // namespace megatron
