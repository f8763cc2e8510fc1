// The pages of docs/ that are made from tables in the code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "megatron/base/flag_help.h"
#include "megatron/kernels/cross_entropy.h"
#include "megatron/training/config/differences.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/unsupported_flags.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

std::string page(const std::string& name) {
  std::ifstream file(testing::source_path("docs/") + name);
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
          markdown_of(describe(defaults)) + unsupported_flags_markdown());
}

TEST(Documentation, ListsEveryDifferenceOfTheCommandLine) {
  constexpr std::string_view kSection = "## Command line of pretrain_gpt\n\n";
  const std::string text = page("differences.md");
  const size_t begin = text.find(kSection), end = text.find("\n## ", begin + kSection.size());
  ASSERT_LT(begin, end);
  std::string rows = "| what | Megatron-LM | here |\n|---|---|---|\n";
  for (const Difference& difference : differences({}))
    rows += fmt::format("| {} | {} | {} |\n", difference.topic, difference.megatron, difference.ours);
  expect_page("differences.md", text.substr(0, begin) + std::string(kSection) + rows + text.substr(end));
}

/// Mean loss of all-equal logits: what an untrained model has.
double loss_at_the_start(int64_t vocab_size, int64_t num_rows) {
  using testing::GuardedTensor;
  constexpr DType kDouble = DType::kFloat64;
  GuardedTensor logits(kDouble, {1, 1, num_rows}, std::vector<double>(static_cast<size_t>(num_rows)));
  GuardedTensor label(DType::kInt64, {1, 1}, {0}), mask(DType::kFloat32, {1, 1}, {1});
  GuardedTensor max(kDouble, {1, 1}), sum_exp(kDouble, {1, 1}), loss(kDouble, {1, 1});
  kernels::cross_entropy_forward(CpuStream{.num_threads = 1}, {.logits = logits.view(),
                                                               .columns = {.first_id = 0, .vocab_size = vocab_size},
                                                               .targets = label.view(),
                                                               .loss_mask = mask.view(),
                                                               .label_smoothing = 0,
                                                               .max = max.view(),
                                                               .sum_exp = sum_exp.view(),
                                                               .loss = loss.view()});
  return loss[0];
}

/// Megatron's loss is that of as many tokens as there are rows.
TEST(Documentation, SaysHowMuchLessTheLossIsForLeavingPaddingOut) {
  const double ours = loss_at_the_start(50257, 50304), megatrons = loss_at_the_start(50304, 50304);
  EXPECT_DOUBLE_EQ(ours, loss_at_the_start(50257, 50257));
  EXPECT_THAT(page("differences.md"),
              ::testing::HasSubstr(fmt::format("{:.5f} for 50257 tokens in 50304 rows", megatrons - ours)));
}

}  // namespace
}  // namespace megatron
