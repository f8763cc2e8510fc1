#include "megatron/base/host_memory_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "megatron/base/error.h"

namespace megatron {
namespace {

TEST(HostMemoryFiles, MakesAFileOnce) {
  HostMemoryFiles files;
  files.create_directories("folder");
  EXPECT_TRUE(files.create_file("folder/lock", "first"));
  EXPECT_FALSE(files.create_file("folder/lock", "second"));
  EXPECT_FALSE(files.create_file("folder", "third"));
  EXPECT_EQ(read_file(files, "folder/lock"), "first");
  EXPECT_THROW(files.create_file("none/lock", "fourth"), IoError);
}

void write(FileSystem& files, const std::string& path, std::string_view content, WriteMode mode) {
  const auto file = files.open_for_writing(path, mode);
  file->append(std::as_bytes(std::span(content)));
  file->sync();
  file->close();
}

/// All that is below a directory: paths, types, contents.
std::string tree_of(const FileSystem& files, const std::string& directory) {
  std::string text;
  for (const DirectoryEntry& entry : files.list(directory)) {
    const std::string path = join_path(directory, entry.name);
    text += entry.name +
            (entry.type == EntryType::kFile ? "=" + read_file(files, path) + ";" : "{" + tree_of(files, path) + "}");
  }
  return text;
}

using Action = std::function<void(FileSystem&, const std::string& root)>;

/// Does the file operations of a checkpoint, and those that must be rejected.
const std::vector<Action> kActions = {
    [](auto& files, auto& root) { files.create_directories(root + "/a/b"); },
    [](auto& files, auto& root) { write(files, root + "/a/b/one", "1", WriteMode::kTruncate); },
    [](auto& files, auto& root) { write(files, root + "/a/b/one", "23", WriteMode::kAppend); },
    [](auto& files, auto& root) { write(files, root + "/a/bee", "x", WriteMode::kTruncate); },
    [](auto& files, auto& root) { write(files, root + "/none/file", "x", WriteMode::kTruncate); },
    [](auto& files, auto& root) { write(files, root + "/a", "x", WriteMode::kTruncate); },
    [](auto& files, auto& root) { files.rename(root + "/a/b", root + "/a/c"); },
    [](auto& files, auto& root) { files.rename(root + "/a/b", root + "/a/d"); },
    [](auto& files, auto& root) { read_file(files, root + "/a/b/one"); },
    [](auto& files, auto& root) { files.create_directories(root + "/full/inner"); },
    [](auto& files, auto& root) { write(files, root + "/full/file", "y", WriteMode::kTruncate); },
    [](auto& files, auto& root) { files.rename(root + "/a", root + "/full"); },
    [](auto& files, auto& root) { files.rename(root + "/full/file", root + "/a/bee"); },
    [](auto& files, auto& root) { files.list(root + "/nowhere"); },
    [](auto& files, auto& root) { replace_file(files, root + "/tracker", "10"); },
    [](auto& files, auto& root) { replace_file(files, root + "/tracker", "20"); },
    [](auto& files, auto& root) { files.remove(root + "/full"); },
    [](auto& files, auto& root) { files.remove(root + "/full"); },
    [](auto& files, auto& root) { files.rename(root + "/a", root + "/z"); },
};

bool succeeds(const Action& action, FileSystem& files, const std::string& root) {
  try {
    action(files, root);
    return true;
  } catch (const IoError&) {
    return false;
  }
}

TEST(HostMemoryFiles, DoWhatTheDiskDoes) {
  const std::string root = testing::TempDir() + "host_memory_files_" + std::to_string(::getpid());
  PosixFileSystem disk;
  HostMemoryFiles memory;
  disk.create_directories(root);
  memory.create_directories("root");
  int num_refused = 0;
  for (size_t i = 0; i < kActions.size(); ++i) {
    const bool expected = succeeds(kActions[i], disk, root);
    EXPECT_EQ(succeeds(kActions[i], memory, "root"), expected) << "action " << i;
    EXPECT_EQ(tree_of(memory, "root"), tree_of(disk, root)) << "after action " << i;
    num_refused += expected ? 0 : 1;
  }
  EXPECT_EQ(num_refused, 6);
  std::filesystem::remove_all(root);
}

TEST(HostMemoryFiles, ReadRangesAndRefuseWhatIsBeyondTheEnd) {
  HostMemoryFiles files;
  write(files, "file", "0123456789", WriteMode::kTruncate);
  const auto file = files.open_for_reading("file");
  EXPECT_EQ(file->size(), 10);
  std::string part(4, ' ');
  file->read(6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "6789");
  for (const int64_t offset : {int64_t{7}, int64_t{11}, int64_t{-1}})
    EXPECT_THROW(file->read(offset, std::as_writable_bytes(std::span(part))), IoError) << offset;
}

TEST(HostMemoryFiles, AnOpenFileOutlivesItsName) {
  HostMemoryFiles files;
  write(files, "file", "content", WriteMode::kTruncate);
  const auto file = files.open_for_reading("file");
  files.remove("file");
  EXPECT_FALSE(files.exists("file"));
  EXPECT_EQ(files.total_bytes(), 0);
  std::string all(7, ' ');
  file->read(0, std::as_writable_bytes(std::span(all)));
  EXPECT_EQ(all, "content");
}

TEST(HostMemoryFiles, ThreadsWriteFilesOfTheirOwn) {
  HostMemoryFiles files;
  files.create_directories("share");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&files, t] {
      const std::string name = "share/" + std::to_string(t);
      for (int i = 0; i < 100; ++i) write(files, name, std::to_string(t), WriteMode::kAppend);
    });
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < 4; ++t)
    EXPECT_EQ(read_file(files, "share/" + std::to_string(t)), std::string(100, static_cast<char>('0' + t)));
}

}  // namespace
}  // namespace megatron
