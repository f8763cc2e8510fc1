#include "megatron/training/checkpoint/save_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "megatron/base/error.h"
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

/// Each checkpoint that is not persistent removes all others of its folder.
TEST(SaveFolder, IsNotThatOfCheckpointsThatAreNotPersistentNorALinkToIt) {
  const testing::ScratchDirectory directory;
  const std::string save = directory.file("save"), link = directory.file("link");
  std::filesystem::create_directory(save);
  std::filesystem::create_directory_symlink(save, link);
  CheckpointConfig config;
  config.save = save;
  config.non_persistent_save_interval = 5;
  const auto folders = [&](const std::string& others) {
    config.non_persistent_global_ckpt_dir = others;
    return checkpoint_folders_of(config);
  };
  for (const std::string& same : {save, save + "/.", link, link + "/../link/"})
    EXPECT_THAT([&] { folders(same); },
                ::testing::ThrowsMessage<ConfigError>(HasSubstr("the others of --save would be removed")))
        << same;
  EXPECT_EQ(folders(link + "/others").size(), 2U) << "does not exist";
  EXPECT_EQ(folders(directory.file("others")).size(), 2U);
}

}  // namespace
}  // namespace megatron
