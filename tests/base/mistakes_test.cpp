#include "megatron/base/mistakes.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(Mistakes, AreThrownTogether) {
  Mistakes mistakes;
  EXPECT_NO_THROW(mistakes.throw_if_any("program"));
  mistakes.add({"--a", "--b"}, "--a {} and --b {} exclude each other", 1, 2);
  mistakes.refuse_value("--c", "--c is wrong");
  try {
    mistakes.throw_if_any("program");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "program: 2 mistakes\n  1. --a 1 and --b 2 exclude each other\n  2. --c is wrong");
  }
}

TEST(Mistakes, ThatAreAnotherErrorAreThrownAsItAlone) {
  Mistakes mistakes;
  mistakes.attempt({"--a"}, [] {});
  EXPECT_TRUE(mistakes.empty());
  mistakes.attempt({"--a"}, [] { throw DataError("a is cut off"); });
  EXPECT_THROW(mistakes.throw_if_any("program"), DataError);
  mistakes.attempt({"--b"}, [] { throw ConfigError("b is wrong"); });
  mistakes.refuse_value("--c", "--c is wrong");
  mistakes.attempt({"--c"}, [] { throw DataError("c follows"); });
  try {
    mistakes.throw_if_any("program");
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "program: 3 mistakes\n  1. a is cut off\n  2. b is wrong\n  3. --c is wrong");
  }
}

TEST(Mistakes, SayNothingAboutAFlagWhoseValueIsRefused) {
  Mistakes mistakes;
  mistakes.refuse_value("--a", "--a x: must be a whole number");
  mistakes.doubt("--d");
  mistakes.add({"--a", "--b"}, "--a is required by --b");
  mistakes.add({"--d"}, "--d is required");
  mistakes.add({"--b"}, "--b is wrong");
  EXPECT_EQ(mistakes.texts().size(), 2u);
}

}  // namespace
}  // namespace megatron
