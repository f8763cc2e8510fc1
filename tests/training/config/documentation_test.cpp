// The pages of docs/ that are made from tables in the code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "megatron/base/flag_help.h"
#include "megatron/training/config/differences.h"
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

std::string page(const std::string& name) {
  std::ifstream file(std::string(MEGATRON_SOURCE_DIR) + "/docs/" + name);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// A page that has fallen behind is written where it can be copied from.
void expect_page(const std::string& name, const std::string& expected) {
  if (page(name) == expected) return;
  const std::filesystem::path path = std::filesystem::temp_directory_path() / name;
  std::ofstream(path) << expected;
  ADD_FAILURE() << "docs/" << name << " is not what the code says; the page as it should be is in " << path;
}

TEST(Documentation, ListsEveryFlagOfPretrainGpt) {
  PretrainConfig defaults;
  expect_page(
      "pretrain_gpt_flags.md",
      "# Flags of `megatron pretrain_gpt`\n\n"
      "The flags are Megatron-LM's, with its defaults and rules; [differences.md](differences.md) says where not.\n\n" +
          markdown_of(describe(defaults)));
}

TEST(Documentation, ListsEveryDifferenceOfTheCommandLine) {
  const std::string text = page("differences.md");
  for (const Difference& difference : differences())
    EXPECT_THAT(text, ::testing::HasSubstr(
                          fmt::format("| {} | {} | {} |\n", difference.topic, difference.megatron, difference.ours)));
}

}  // namespace
}  // namespace megatron
