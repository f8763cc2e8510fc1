// The commands of docs/mixture_of_experts.md, which trains experts beside a dense model and draws both.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <vector>

#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

/// The texts between lines of three backquotes.
std::vector<std::string> scripts_of_page() {
  std::ifstream file(source_path("docs/mixture_of_experts.md"));
  std::vector<std::string> scripts;
  bool is_inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      is_inside = !is_inside;
      if (is_inside) scripts.emplace_back();
    } else if (is_inside) {
      scripts.back() += line + "\n";
    }
  }
  return scripts;
}

/// Two steps on one thread a rank instead of hundreds.
TEST(ExpertsPage, ItsCommandsRun) {
  const ScratchDirectory scratch;
  std::filesystem::create_directories(scratch.file("docs/images"));
  std::filesystem::create_directories(scratch.file("build/bin"));
  std::filesystem::create_symlink(MEGATRON_PROGRAM, scratch.file("build/bin/megatron"));
  std::filesystem::create_directory_symlink(source_path("data"), scratch.file("data"));
  const std::vector<std::string> scripts = scripts_of_page();
  ASSERT_EQ(scripts.size(), 2);
  for (std::string script : scripts) {
    script =
        std::regex_replace(script, std::regex("--train-iters \\d+"), "--train-iters 2 --device cpu --num-threads 1");
    script = std::regex_replace(script, std::regex("--lr-warmup-iters \\d+"), "--lr-warmup-iters 1");
    script = std::regex_replace(script, std::regex("--eval-iters \\d+"), "--eval-iters 0");
    Program process({"/bin/sh", "-ec", "cd " + scratch.path() + "\n" + script});
    EXPECT_EQ(process.wait_status(), 0) << script << "\n" << process.output();
  }
  for (const char* picture : {"docs/images/experts_loss.svg", "docs/images/experts_loads.svg"})
    EXPECT_TRUE(std::filesystem::exists(scratch.file(picture))) << picture;
}

}  // namespace
}  // namespace megatron::testing
