#include "megatron/base/field.h"

#include <gtest/gtest.h>

#include <array>

namespace megatron {
namespace {

enum class Colour { kNone, kRed, kBlue };
constexpr auto names_of_enum(Colour) {
  return std::to_array<std::pair<Colour, std::string_view>>({{Colour::kRed, "red"}, {Colour::kBlue, "blue"}});
}

struct Paint {
  Colour colour = Colour::kNone;
  std::vector<Colour> mix;
  std::optional<int64_t> litres;
  double price = 1;
  bool glossy = true;
};

FieldTable describe(Paint& paint) {
  FieldTable table;
  table.begin_group("Paint", "");
  table.add("colour", paint.colour, "");
  table.add("mix", paint.mix, "");
  table.add("litres", paint.litres, "").at_least(1);
  table.add("price", paint.price, "");
  table.add_on("glossy", paint.glossy, "");
  return table;
}

TEST(Field, ReadsAndWritesItsMember) {
  Paint paint;
  FieldTable table = describe(paint);
  table.find("colour")->set(std::string("blue"));
  table.find("mix")->set(std::vector<std::string>{"red", "blue"});
  table.find("litres")->set(int64_t{3});
  table.find("price")->set(int64_t{2});  // a whole number is a number
  EXPECT_EQ(paint.colour, Colour::kBlue);
  EXPECT_EQ(paint.mix, (std::vector{Colour::kRed, Colour::kBlue}));
  EXPECT_EQ(paint.litres, 3);
  EXPECT_EQ(paint.price, 2.0);
  EXPECT_EQ(table.find("mix")->get(), FieldValue(std::vector<std::string>{"red", "blue"}));
}

TEST(Field, ShowsAnUnnamedFirstEnumeratorAndAnEmptyOptionalAsNone) {
  Paint paint;
  FieldTable table = describe(paint);
  EXPECT_EQ(table.find("colour")->get(), FieldValue());
  EXPECT_EQ(table.find("litres")->get(), FieldValue());
  paint.colour = Colour::kRed;
  table.find("colour")->set(FieldValue());
  EXPECT_EQ(paint.colour, Colour::kNone);
}

TEST(Field, RefusesValuesThatDoNotFit) {
  Paint paint;
  FieldTable table = describe(paint);
  EXPECT_THROW(table.find("colour")->set(std::string("green")), ConfigError);
  EXPECT_THROW(table.find("litres")->set(2.5), ConfigError);
  EXPECT_THROW(table.find("glossy")->set(int64_t{1}), ConfigError);
  EXPECT_THROW(table.find("price")->set(std::string("1")), ConfigError);
}

TEST(Field, DerivesItsFlags) {
  Paint paint;
  FieldTable table = describe(paint);
  EXPECT_EQ(table.find("colour")->flags, std::vector<std::string>{"--colour"});
  EXPECT_EQ(table.find("colour")->choices, (std::vector<std::string>{"red", "blue"}));
  EXPECT_EQ(table.find("glossy")->off_flags, (std::vector<std::string>{"--no-glossy", "--disable-glossy"}));
  EXPECT_TRUE(table.find("glossy")->flags.empty());
  EXPECT_EQ(table.find("nothing"), nullptr);
}

TEST(PythonText, WritesWhatPythonPrints) {
  EXPECT_EQ(python_text({}), "None");
  EXPECT_EQ(python_text(true), "True");
  EXPECT_EQ(python_text(int64_t{7}), "7");
  EXPECT_EQ(python_text(1.0), "1.0");
  EXPECT_EQ(python_text(1e-5), "1e-05");
  EXPECT_EQ(python_text(0.0001), "0.0001");
  EXPECT_EQ(python_text(1e16), "1e+16");
  EXPECT_EQ(python_text(std::string("a b")), "a b");
  EXPECT_EQ(python_text(std::vector<int64_t>{1, 2}), "[1, 2]");
  EXPECT_EQ(python_text(std::vector<double>{0.5, 2}), "[0.5, 2.0]");
  EXPECT_EQ(python_text(std::vector<std::string>{"a", "b"}), "['a', 'b']");
  EXPECT_EQ(python_text(std::vector<std::string>{}), "[]");
}

}  // namespace
}  // namespace megatron
