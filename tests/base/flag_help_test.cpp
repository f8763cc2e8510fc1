#include "megatron/base/flag_help.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(FlagHelp, ShowsFlagsChoicesUnitsDefaultsAndReasons) {
  int64_t minutes = 10;
  std::string style = "plain";
  std::vector<std::string> paths;
  bool safe = true, idle = false;
  FieldTable table;
  table.begin_group("Group", "What it is about.");
  table.add("limit", minutes, "time before it stops").in("minutes");
  table.add("style", style, "the look").one_of({"plain", "striped"});
  table.add("paths", paths, "where");
  table.add_on("safe", safe, "take risks");
  table.add("idle", idle, "").without_effect("nothing hangs on it");
  table.add_derived("sum", minutes, "not a flag");
  EXPECT_EQ(help_of(table),
            "Group\n"
            "  What it is about.\n\n"
            "  --limit N\n"
            "      time before it stops, in minutes (default: 10)\n"
            "  --style {plain,striped}\n"
            "      the look (default: plain)\n"
            "  --paths TEXT ...\n"
            "      where\n"
            "  --no-safe, --disable-safe\n"
            "      take risks\n"
            "  --idle\n"
            "      no effect: nothing hangs on it\n\n");
}

TEST(FlagHelp, ShowsWhatADefaultFollowsFromAndWhatIsNotSupportedYet) {
  std::optional<int64_t> width, ranks = 1;
  bool half = false;
  FieldTable table;
  table.begin_group("Group", "");
  table.add("width", width, "of a layer").by_default("4 * --size").at_least(1).at_most(9);
  table.add("ranks", ranks, "that share a sequence").not_supported_yet("no ring attention");
  table.add("half", half, "the loss in 16 bits").not_supported_yet("the loss is in fp32");
  EXPECT_EQ(help_of(table),
            "Group\n"
            "  --width N\n      of a layer (default: 4 * --size)\n"
            "  --ranks N\n      that share a sequence; 1 only, so far: no ring attention (default: 1)\n"
            "  --half\n      the loss in 16 bits; not supported yet: the loss is in fp32\n\n");
  EXPECT_EQ(help_of(*table.find("width")),
            "--width N\n  of a layer\n  default: 4 * --size\n  range: at least 1, at most 9\n");
}

TEST(FlagHelp, ShowsWhatAFlagNeedsAndAnExample) {
  double base = 1;
  FieldTable table;
  table.begin_group("Group", "");
  table.add("base", base, "of frequencies").needs("--rotate", [] { return false; }).such_as("--rotate --base 500000");
  EXPECT_EQ(help_of(*table.find("base")),
            "--base X\n  of frequencies\n  default: 1.0\n  has an effect only with: --rotate\n"
            "  example: --rotate --base 500000\n");
}

TEST(FlagHelp, FindsFlagsByAWordOfTheirText) {
  int64_t minutes = 10;
  bool quick = false;
  FieldTable table;
  table.begin_group("Time", "Long text.");
  table.add("limit", minutes, "time before it stops").in("minutes");
  table.add("quick", quick, "hurry");
  EXPECT_EQ(help_about(table, "STOPS, in min"),
            "Time\n  --limit N\n      time before it stops, in minutes (default: 10)\n\n");
  EXPECT_EQ(help_about(table, "long"), "");
}

TEST(FlagHelp, LeavesNoEmptyLinesForAGroupWithoutText) {
  int64_t minutes = 10;
  FieldTable table;
  table.begin_group("Group", "");
  table.add("limit", minutes, "time");
  EXPECT_EQ(help_of(table), "Group\n  --limit N\n      time (default: 10)\n\n");
}

TEST(FlagHelp, MakesATableOfThePage) {
  int64_t minutes = 10;
  bool safe = true;
  FieldTable table;
  table.begin_group("Group", "What it is about.");
  table.add("limit", minutes, "a | b").in("minutes");
  table.add_on("safe", safe, "take risks");
  EXPECT_EQ(markdown_of(table),
            "## Group\n\nWhat it is about.\n\n"
            "| flag | default | meaning |\n|---|---|---|\n"
            "| `--limit` N | 10 | a \\| b, in minutes |\n"
            "| `--no-safe`, `--disable-safe` |  | take risks |\n\n");
}

TEST(FlagHelp, WrapsLongTexts) {
  bool flag = false;
  FieldTable table;
  table.begin_group("Group", "word");
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word ";
  table.add("flag", flag, text);
  size_t begin = 0;
  const std::string help = help_of(table);
  while (begin < help.size()) {
    const size_t end = help.find('\n', begin);
    EXPECT_LE(end - begin, 100u);
    begin = end + 1;
  }
}

}  // namespace
}  // namespace megatron
