#include "megatron/base/field_needs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(FieldNeeds, AreMistakesOfGivenFlagsAloneUnlessTheNeededFlagIsWrongItself) {
  bool chat = false;
  int64_t tokens = 3;
  FieldTable table;
  table.begin_group("Group", "");
  table.add("tokens", tokens, "number").needs("--chat 1", [&chat] { return chat; });
  const auto mistakes_of = [&](const GivenFields& given, bool is_wrong) {
    Mistakes mistakes;
    if (is_wrong) mistakes.doubt("--chat");
    check_needs(table, given, mistakes);
    return mistakes.texts();
  };
  EXPECT_THAT(mistakes_of({{"tokens", "--tokens"}}, false), ElementsAre("--tokens needs --chat 1"));
  EXPECT_THAT(mistakes_of({}, false), IsEmpty());
  EXPECT_THAT(mistakes_of({{"tokens", "--tokens"}}, true), IsEmpty());
  chat = true;
  EXPECT_THAT(mistakes_of({{"tokens", "--tokens"}}, false), IsEmpty());
}

}  // namespace
}  // namespace megatron
