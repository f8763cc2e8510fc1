#include "megatron/tokenizers/json_syntax.h"

#include <gtest/gtest.h>

#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

TEST(JsonSyntax, AcceptsWhatPythonReadsAsADictAndNothingElse) {
  const auto texts = [](const char* key) {
    return testing::golden_json("tokenizers/json_loads.json", key).get<std::vector<std::string>>();
  };
  const auto good = texts("json.loads gives a dict"), bad = texts("it does not");
  ASSERT_FALSE(good.empty());
  ASSERT_FALSE(bad.empty());
  for (const std::string& text : good)
    if (const auto fault = find_json_fault(text)) ADD_FAILURE() << text << " at " << fault->offset << fault->expected;
  for (const std::string& text : bad) EXPECT_TRUE(find_json_fault(text)) << text;
}

TEST(JsonSyntax, TellsWhatIsExpectedWhere) {
  const auto fault = [](const std::string& text) {
    const auto found = find_json_fault(text);
    return found ? std::to_string(found->offset) + " " + found->expected : "none";
  };
  EXPECT_EQ(fault("[1]"), "0 '{'");
  EXPECT_EQ(fault("{\"a\" 1}"), "5 ':' after the key");
  EXPECT_EQ(fault("{\"a\":garbage}"), "5 a value");
  EXPECT_EQ(fault("{\"a\":01}"), "6 a comma or '}'");
  EXPECT_EQ(fault("{\"a\":[1"), "7 a comma or ']'");
  EXPECT_EQ(fault("{\"a\":1,}"), "7 another element after the comma");
  EXPECT_EQ(fault("{\"a\":\"b"), "7 the '\"' that ends a string");
  EXPECT_EQ(fault("{} {}"), "3 nothing after the object");
}

TEST(JsonSyntax, HasNoLimitOfDepth) {
  const std::string open(200'000, '['), close(200'000, ']');
  EXPECT_FALSE(find_json_fault("{\"a\":" + open + close + "}"));
  EXPECT_TRUE(find_json_fault("{\"a\":" + open + "}"));
}

}  // namespace
}  // namespace megatron
