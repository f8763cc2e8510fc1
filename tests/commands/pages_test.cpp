// The commands of pages of docs/ that start from nothing but the data of the repository.
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
std::vector<std::string> scripts_of(const std::string& page) {
  std::ifstream file(source_path(page));
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

/// Runs the scripts of a page one after the other in a folder that has what they need of the repository: two steps on
/// one thread a rank instead of hundreds. @return the output of each
std::vector<std::string> run_page(const std::string& page, const ScratchDirectory& scratch) {
  std::filesystem::create_directories(scratch.file("build/bin"));
  std::filesystem::create_symlink(MEGATRON_PROGRAM, scratch.file("build/bin/megatron"));
  std::filesystem::create_directory_symlink(source_path("data"), scratch.file("data"));
  std::vector<std::string> outputs;
  for (std::string script : scripts_of(page)) {
    script =
        std::regex_replace(script, std::regex("--train-iters \\d+"), "--train-iters 2 --device cpu --num-threads 1");
    script = std::regex_replace(script, std::regex("--lr-warmup-iters \\d+"), "--lr-warmup-iters 1");
    script = std::regex_replace(script, std::regex("--eval-iters [1-9]\\d*"), "--eval-iters 1");
    Program process({"/bin/sh", "-ec", "cd " + scratch.path() + "\n" + script});
    EXPECT_EQ(process.wait_status(), 0) << script << "\n" << process.output();
    outputs.push_back(process.output());
  }
  return outputs;
}

TEST(Pages, CommandsOfMixtureOfExpertsRun) {
  const ScratchDirectory scratch;
  std::filesystem::create_directories(scratch.file("docs/images"));
  EXPECT_EQ(run_page("docs/mixture_of_experts.md", scratch).size(), 2);
  for (const char* picture : {"docs/images/experts_loss.svg", "docs/images/experts_loads.svg"})
    EXPECT_TRUE(std::filesystem::exists(scratch.file(picture))) << picture;
}

TEST(Pages, CommandsOfDataRun) {
  const ScratchDirectory scratch;
  const std::vector<std::string> outputs = run_page("docs/data.md", scratch);
  ASSERT_EQ(outputs.size(), 5);
  EXPECT_NE(outputs[0].find(R"({"ids": [84, 111, 32, 98, 101], "decoded": "To be"})"), std::string::npos) << outputs[0];
  EXPECT_NE(outputs[1].find("3 documents, 3 sequences, 281 tokens"), std::string::npos) << outputs[1];
  EXPECT_NE(outputs[2].find("the largest 256: no fault"), std::string::npos) << outputs[2];
  EXPECT_NE(outputs[4].find("<user>Who came in?</s><assistant>The boats.</s>"), std::string::npos) << outputs[4];
  EXPECT_NE(outputs[4].find("3 conversations"), std::string::npos) << outputs[4];
  for (const char* path : {"my_data/shakespeare_val_text_document.idx", "my_data/model", "my_data/chat_model"})
    EXPECT_TRUE(std::filesystem::exists(scratch.file(path))) << path;
}

}  // namespace
}  // namespace megatron::testing
