#include "megatron/base/flag_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using Words = std::vector<std::string>;

struct Settings {
  std::optional<int64_t> count;
  double rate = 0.5;
  std::string name = "none";
  bool later = false;
  std::string style = "plain";
  std::vector<int64_t> steps;
  std::vector<int64_t> range;
  std::vector<std::string> paths;
  bool quick = false;
  bool safe = true;
  bool both = true;
};

struct Outcome {
  Settings settings;
  Words mistakes;
  GivenFields given;
};

std::vector<FlagSynonym> foreign_synonyms() {
  return {{"speed velocity", "--rate"},
          {"where", "--paths --name --elsewhere", "files, or a label"},
          {"depth", "--elsewhere"},
          {"colour", "", "there are no colours"}};
}

Outcome parse(const Words& words) {
  Outcome outcome;
  Settings& settings = outcome.settings;
  FieldTable table;
  table.begin_group("Settings", "");
  table.add("count", settings.count, "").also({"--number"}).at_least(1).at_most(10);
  table.add("rate", settings.rate, "").at_least(-1).below(1).known_as("tempo pace", "per step").known_as("label");
  table.add("name", settings.name, "").known_as("label").known_as("tempo", "not this remark");
  table.add("later", settings.later, "").not_supported_yet("it comes later").known_as("soon");
  table.add("style", settings.style, "")
      .one_of({"plain", "striped"})
      .later({"dotted"})
      .choice_also("even", "plain")
      .choice_also("dots", "dotted");
  table.add("range", settings.range, "").exactly(2);
  table.add("steps", settings.steps, "");
  table.add("paths", settings.paths, "").may_be_empty();
  table.add("quick", settings.quick, "");
  table.add_on("safe", settings.safe, "");
  table.add("both", settings.both, "").also_turned_off_by("--no-both");
  Mistakes mistakes;
  outcome.given =
      parse_flags(table, words, {.refused = {{"--old", "give --count"}}, .synonyms = foreign_synonyms()}, mistakes);
  outcome.mistakes = mistakes.texts();
  return outcome;
}

TEST(FlagParser, SuggestsFlagsByWhatTheirFieldsAreKnownAs) {
  EXPECT_THAT(parse({"--pace", "3"}).mistakes,
              ElementsAre("--pace: there is no such flag; did you mean --rate? (per step)"));
  EXPECT_THAT(parse({"--label", "a"}).mistakes,
              ElementsAre("--label: there is no such flag; did you mean --rate or --name?"));
  EXPECT_THAT(parse({"--tempo", "3"}).mistakes,
              ElementsAre("--tempo: there is no such flag; did you mean --rate or --name? (per step)"));
  EXPECT_THAT(parse({"--soon"}).mistakes, ElementsAre("--soon: there is no such flag (it comes later)"));
}

TEST(FlagParser, ReadsEveryKindOfValue) {
  const Outcome outcome =
      parse({"--count", "3", "--rate=0.25", "--name", "a b", "--steps", "1", "2", "--quick", "--paths", "x", "y"});
  EXPECT_THAT(outcome.mistakes, IsEmpty());
  EXPECT_EQ(outcome.settings.count, 3);
  EXPECT_EQ(outcome.settings.rate, 0.25);
  EXPECT_EQ(outcome.settings.name, "a b");
  EXPECT_THAT(outcome.settings.steps, ElementsAre(1, 2));
  EXPECT_THAT(outcome.settings.paths, ElementsAre("x", "y"));
  EXPECT_TRUE(outcome.settings.quick);
  EXPECT_THAT(outcome.given, ElementsAre(Pair("count", "--count"), Pair("name", "--name"), Pair("paths", "--paths"),
                                         Pair("quick", "--quick"), Pair("rate", "--rate"), Pair("steps", "--steps")));
}

TEST(FlagParser, TakesAliasesAndKeepsWhichSpellingWasGiven) {
  const Outcome outcome = parse({"--number", "3", "--style", "even"});
  EXPECT_THAT(outcome.mistakes, IsEmpty());
  EXPECT_EQ(outcome.settings.count, 3);
  EXPECT_EQ(outcome.settings.style, "plain");
  EXPECT_EQ(outcome.given.at("count"), "--number");
  EXPECT_THAT(parse({"--style", "dots"}).mistakes, ElementsAre(HasSubstr("--style dots: means dotted, a choice of")));
}

TEST(FlagParser, TakesAsManyWordsAsAListOfFixedLengthHas) {
  EXPECT_THAT(parse({"--range", "3", "5"}).settings.range, ElementsAre(3, 5));
  EXPECT_THAT(parse({"--range", "3"}).mistakes, ElementsAre(HasSubstr("--range needs 2 values")));
  EXPECT_THAT(parse({"--range", "3", "5", "7"}).mistakes, ElementsAre(HasSubstr("'7' is one word too many")));
}

TEST(FlagParser, TakesTheLastOfSeveral) {
  EXPECT_EQ(parse({"--count", "3", "--count", "4"}).settings.count, 4);
  EXPECT_THAT(parse({"--steps", "1", "2", "--steps", "3"}).settings.steps, ElementsAre(3));
}

TEST(FlagParser, ReadsNumbersAsPythonDoes) {
  EXPECT_EQ(parse({"--count", " 1_0 "}).settings.count, 10);
  EXPECT_EQ(parse({"--count", "+7"}).settings.count, 7);
  EXPECT_EQ(parse({"--rate", "1e-1"}).settings.rate, 0.1);
  EXPECT_EQ(parse({"--rate", ".5"}).settings.rate, 0.5);
}

TEST(FlagParser, TakesNegativeNumbersAsValues) {
  EXPECT_EQ(parse({"--rate", "-0.5"}).settings.rate, -0.5);
  EXPECT_EQ(parse({"--rate", "-1e-5"}).settings.rate, -1e-5);
  EXPECT_THAT(parse({"--count", "-1"}).mistakes, ElementsAre("--count -1: must be at least 1"));
  EXPECT_EQ(parse({"--name", "-1,0"}).settings.name, "-1,0");
}

TEST(FlagParser, TurnsSwitchesOnAndOff) {
  EXPECT_FALSE(parse({"--no-safe"}).settings.safe);
  EXPECT_FALSE(parse({"--disable-safe"}).settings.safe);
  EXPECT_FALSE(parse({"--no-both"}).settings.both);
  EXPECT_TRUE(parse({"--no-both", "--both"}).settings.both);
  EXPECT_THAT(parse({"--safe"}).mistakes, ElementsAre(HasSubstr("there is no such flag")));
}

TEST(FlagParser, AcceptsEmptyListsOnlyWhereAllowed) {
  EXPECT_THAT(parse({"--paths"}).mistakes, IsEmpty());
  EXPECT_THAT(parse({"--steps"}).mistakes, ElementsAre("--steps needs a value"));
}

TEST(FlagParser, RefusesBadWords) {
  EXPECT_THAT(parse({"--count"}).mistakes, ElementsAre("--count needs a value"));
  EXPECT_THAT(parse({"--count", "--quick"}).mistakes, ElementsAre("--count needs a value"));
  EXPECT_THAT(parse({"--count", "3.5"}).mistakes, ElementsAre("--count 3.5: must be a whole number"));
  EXPECT_THAT(parse({"--count", "99999999999999999999"}).mistakes,
              ElementsAre(HasSubstr("99999999999999999999: must be at most")));
  for (const char* word : {"-99999999999999999999", " -99999999999999999999"})
    EXPECT_THAT(parse({"--count", word}).mistakes, ElementsAre(HasSubstr("must be at least")));
  EXPECT_THAT(parse({"--count", "11"}).mistakes, ElementsAre("--count 11: must be at most 10"));
  EXPECT_THAT(parse({"--rate", "1"}).mistakes, ElementsAre("--rate 1: must be below 1"));
  EXPECT_THAT(parse({"--rate", "nan"}).mistakes, ElementsAre("--rate nan: must be a finite number"));
  EXPECT_THAT(parse({"--quick=yes"}).mistakes, ElementsAre("--quick is a switch and takes no value, got 'yes'"));
  EXPECT_THAT(parse({"stray"}).mistakes, ElementsAre("'stray' belongs to no flag"));
  EXPECT_THAT(parse({"--count", "1", "2"}).mistakes, ElementsAre("'2' is one word too many for --count"));
}

TEST(FlagParser, NamesTheNearestChoiceAndFlag) {
  EXPECT_THAT(parse({"--style", "stripped"}).mistakes, ElementsAre(HasSubstr("did you mean striped?")));
  EXPECT_THAT(parse({"--style", "dotted"}).mistakes,
              ElementsAre(HasSubstr("does not have yet; here are: plain, striped")));
  EXPECT_THAT(parse({"--cuont", "3"}).mistakes, ElementsAre("--cuont: there is no such flag; did you mean --count?"));
  EXPECT_THAT(parse({"--qui"}).mistakes, ElementsAre("--qui: there is no such flag; did you mean --quick?"));
  EXPECT_THAT(parse({"--zzzzzz"}).mistakes, ElementsAre("--zzzzzz: there is no such flag (--help lists all)"));
  EXPECT_THAT(parse({"--old", "3", "4"}).mistakes, ElementsAre("--old: give --count"));
}

TEST(FlagParser, SuggestsTheFlagsOfWhatOtherProgramsCallASetting) {
  EXPECT_THAT(parse({"--Velocity", "3"}).mistakes,
              ElementsAre("--Velocity: there is no such flag; did you mean --rate?"));
  EXPECT_THAT(parse({"-speed=3"}).mistakes, ElementsAre("-speed: there is no such flag; did you mean --rate?"));
  EXPECT_THAT(parse({"--where", "x"}).mistakes,
              ElementsAre("--where: there is no such flag; did you mean --paths or --name? (files, or a label)"));
  EXPECT_THAT(parse({"--depth", "3"}).mistakes, ElementsAre("--depth: there is no such flag (--help lists all)"));
  EXPECT_THAT(parse({"--colour", "3"}).mistakes, ElementsAre("--colour: there is no such flag (there are no colours)"));
}

TEST(FlagParser, SuggestsAnotherWordForOnOrOff) {
  EXPECT_THAT(parse({"--disable-both"}).mistakes,
              ElementsAre("--disable-both: there is no such flag; did you mean --no-both?"));
  EXPECT_THAT(parse({"--enable-quick"}).mistakes,
              ElementsAre("--enable-quick: there is no such flag; did you mean --quick?"));
}

TEST(FlagParser, NeverSuggestsARejectedFlag) {
  EXPECT_THAT(parse({"--olds", "3"}).mistakes, ElementsAre("--olds: there is no such flag (--help lists all)"));
}

TEST(FlagParser, GoesOnBehindAMistake) {
  const Outcome outcome = parse({"--cuont", "3", "--rate", "x", "--old", "1", "--name", "b"});
  EXPECT_EQ(outcome.mistakes.size(), 3u);
  EXPECT_EQ(outcome.settings.name, "b");
}

TEST(FlagParser, RefusesAFlagThatIsDescribedTwice) {
  bool a = false, b = false;
  FieldTable table;
  table.begin_group("", "");
  table.add("same", a, "");
  table.add("other", b, "").named({"--same"});
  Mistakes mistakes;
  EXPECT_THROW(parse_flags(table, {}, {}, mistakes), InternalError);
}

}  // namespace
}  // namespace megatron
