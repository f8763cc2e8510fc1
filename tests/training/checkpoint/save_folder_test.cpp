#include "megatron/training/checkpoint/save_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;

TEST(SaveFolder, IsWarnedOfWhereItHasCheckpointsOfAnotherRun) {
  const testing::ScratchDirectory directory;
  PosixFileSystem files;
  const auto warning = [&](const std::optional<std::string>& load) {
    CheckpointConfig config;
    config.save = directory.path();
    config.load = load;
    return warning_of_another_run(files, config).value_or("");
  };
  EXPECT_EQ(warning({}), "");
  std::filesystem::create_directory(directory.file("iter_0000002"));
  EXPECT_EQ(warning({}), "") << "not complete";
  for (const char* name : {"iter_0000002/.metadata", "iter_0000002/metadata.json"}) std::ofstream(directory.file(name));
  const std::string text = "--save " + directory.path() + " holds checkpoints of another run up to iteration 2";
  EXPECT_THAT(warning({}), HasSubstr(text));
  EXPECT_THAT(warning("/none"), HasSubstr(text));
  EXPECT_EQ(warning(directory.path()), "");
  EXPECT_EQ(warning(directory.path() + "//."), "");
  EXPECT_EQ(warning_of_another_run(files, {}), std::nullopt);
}

}  // namespace
}  // namespace megatron
