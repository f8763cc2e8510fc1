#include "megatron/base/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "megatron/base/error.h"
#include "megatron/base/mapped_file.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class PosixFileSystemTest : public testing::Test {
 protected:
  PosixFileSystemTest() {
    root_ = testing::TempDir() + "file_system_test_" + std::to_string(::getpid());
    files_.remove(root_);
    files_.create_directories(root_);
  }
  ~PosixFileSystemTest() override { std::filesystem::remove_all(root_); }
  std::string path(std::string_view name) const { return join_path(root_, name); }
  void write(const std::string& name, std::string_view content, WriteMode mode) {
    const auto file = files_.open_for_writing(path(name), mode);
    file->append(bytes_of(content));
    file->sync();
    file->close();
  }

  PosixFileSystem files_;
  std::string root_;
};

TEST_F(PosixFileSystemTest, WritesAppendsAndReadsRanges) {
  write("a", "hello", WriteMode::kTruncate);
  write("a", " world", WriteMode::kAppend);
  EXPECT_EQ(read_file(files_, path("a")), "hello world");
  const auto file = files_.open_for_reading(path("a"));
  std::string part(5, ' ');
  file->read(6, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "world");
  EXPECT_EQ(file->size(), 11);
  EXPECT_THAT([&] { file->read(7, std::as_writable_bytes(std::span(part))); },
              ThrowsMessage<IoError>(HasSubstr("ends at byte 11, but 1 more are wanted")));
  write("a", "", WriteMode::kTruncate);
  EXPECT_EQ(read_file(files_, path("a")), "");
}

/// Large files go to the disk while they are still being written.
TEST_F(PosixFileSystemTest, WritesLargeFilesInPieces) {
  write("large", "head", WriteMode::kTruncate);
  std::string piece(20'000'001, 'a');
  const auto file = files_.open_for_writing(path("large"), WriteMode::kAppend);
  for (const char letter : {'x', 'y', 'z'}) {
    piece.back() = letter;
    file->append(bytes_of(piece));
  }
  file->close();
  const std::string content = read_file(files_, path("large"));
  ASSERT_EQ(content.size(), 4 + 3 * piece.size());
  EXPECT_TRUE(content.starts_with("heada"));
  for (const size_t number : {0, 1, 2}) EXPECT_EQ(content[4 + (number + 1) * piece.size() - 1], "xyz"[number]);
  EXPECT_EQ(std::ranges::count(content, 'a'), 1 + 3 * 20'000'000);
}

TEST_F(PosixFileSystemTest, ListsByNameAndTellsTypesApart) {
  write("file", "x", WriteMode::kTruncate);
  files_.create_directories(path("b/c"));
  std::filesystem::create_symlink("b", path("link"));
  std::filesystem::create_symlink("nowhere", path("broken"));
  const auto entries = files_.list(root_);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_EQ(entries[0].type, EntryType::kDirectory);
  EXPECT_EQ(entries[1].type, EntryType::kSymlink);
  EXPECT_EQ(entries[2].name, "file");
  EXPECT_EQ(entries[2].type, EntryType::kFile);
  EXPECT_TRUE(files_.exists(path("link/c")));
  EXPECT_FALSE(files_.exists(path("broken")));
  EXPECT_FALSE(files_.exists(path("file/below")));
  EXPECT_THROW(files_.list(path("none")), IoError);
}

TEST_F(PosixFileSystemTest, RemovesTreesAndLinksButNotWhatLinksPointTo) {
  files_.create_directories(path("kept"));
  write("kept/file", "x", WriteMode::kTruncate);
  files_.create_directories(path("gone/deep"));
  std::filesystem::create_symlink(path("kept"), path("gone/link"));
  files_.remove(path("gone"));
  files_.remove(path("never there"));
  EXPECT_FALSE(files_.exists(path("gone")));
  EXPECT_TRUE(files_.exists(path("kept/file")));
}

TEST_F(PosixFileSystemTest, RenamesDirectoriesButNotOntoFullOnes) {
  files_.create_directories(path("a"));
  write("a/file", "x", WriteMode::kTruncate);
  files_.rename(path("a"), path("b"));
  EXPECT_TRUE(files_.exists(path("b/file")));
  files_.create_directories(path("c"));
  EXPECT_THROW(files_.rename(path("c"), path("b")), IoError);
}

TEST_F(PosixFileSystemTest, ReplacesAFileWithoutLeavingTheTemporary) {
  replace_file(files_, path("tracker"), "1");
  replace_file(files_, path("tracker"), "22");
  EXPECT_EQ(read_file(files_, path("tracker")), "22");
  EXPECT_EQ(files_.list(root_).size(), 1u);
}

TEST_F(PosixFileSystemTest, ErrorsNamePathAndReason) {
  EXPECT_THAT([&] { files_.open_for_reading(path("none")); },
              ThrowsMessage<IoError>("[file system] cannot open " + path("none") + ": No such file or directory"));
  EXPECT_THAT([&] { files_.open_for_reading(root_); }, ThrowsMessage<IoError>(HasSubstr("Is a directory")));
  EXPECT_THROW(files_.open_for_writing(path("none/file"), WriteMode::kTruncate), IoError);
  EXPECT_THROW(files_.sync_directory(path("none")), IoError);
  EXPECT_GT(files_.available_bytes(root_), 0);
}

TEST_F(PosixFileSystemTest, MakesAFileOnce) {
  EXPECT_TRUE(files_.create_file(path("lock"), "first"));
  EXPECT_FALSE(files_.create_file(path("lock"), "second"));
  EXPECT_EQ(read_file(files_, path("lock")), "first");
  files_.create_directories(path("folder"));
  EXPECT_FALSE(files_.create_file(path("folder"), "third"));
  EXPECT_THROW(files_.create_file(path("none/lock"), "fourth"), IoError);
  EXPECT_EQ(files_.list(root_).size(), 2) << "nothing temporary is left";
}

TEST_F(PosixFileSystemTest, ReadingRefusesWhatIsNoRegularFileWithoutWaiting) {
  const auto expect_refusal = [&](const std::string& name, const std::string& kind) {
    EXPECT_THAT(
        [&] { files_.open_for_reading(name); },
        ThrowsMessage<IoError>("[file system] cannot open " + name + ": It is " + kind + ", not a regular file"));
    EXPECT_THAT([&] { MappedFile(name, FileAccess::kPread); },
                ThrowsMessage<IoError>(AllOf(HasSubstr(name), HasSubstr("It is " + kind))));
  };
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);  // an open for reading would wait for a writer
  expect_refusal(path("fifo"), "a FIFO (named pipe)");
  expect_refusal("/dev/zero", "a character device");
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  path("s").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  expect_refusal(path("s"), "a socket");
  ::close(socket);
}

TEST(PosixFileSystem, ReportsAFullDevice) {
  PosixFileSystem files;
  const auto file = files.open_for_writing("/dev/full", WriteMode::kTruncate);
  EXPECT_THAT([&] { file->append(bytes_of("x")); }, ThrowsMessage<IoError>(HasSubstr("No space left on device")));
}

TEST(MemoryFile, RefusesRangesOutside) {
  const MemoryFile file("abc");
  std::byte out[2];
  EXPECT_NO_THROW(file.read(1, out));
  EXPECT_THROW(file.read(2, out), IoError);
  EXPECT_THROW(file.read(-1, out), IoError);
  EXPECT_THROW(file.read(INT64_MAX, out), IoError);
}

TEST(Paths, JoinAndSplit) {
  EXPECT_EQ(join_path("a", "b"), "a/b");
  EXPECT_EQ(join_path("a/", "b"), "a/b");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(parent_path("a/b/"), "a");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
}

}  // namespace
}  // namespace megatron
