#include "megatron/base/mapped_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/mapped_ranges.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

class MappedFileTest : public ::testing::TestWithParam<FileAccess> {
 protected:
  std::string make(const std::string& bytes) {
    const std::string path = scratch_.file("file" + std::to_string(num_files_++));
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string text(const MappedFile& file, uint64_t offset, size_t count) {
    std::string out(count, '\0');
    file.read(offset, std::as_writable_bytes(std::span(out)));
    return out;
  }
  const testing::ScratchDirectory scratch_;

 private:
  int num_files_ = 0;
};

TEST_P(MappedFileTest, ReadsAnyRangeOfTheFile) {
  const MappedFile file(make("0123456789"), GetParam());
  EXPECT_EQ(file.size_bytes(), 10u);
  EXPECT_EQ(text(file, 0, 10), "0123456789");
  EXPECT_EQ(text(file, 3, 4), "3456");
  EXPECT_EQ(text(file, 10, 0), "");
}

TEST_P(MappedFileTest, RefusesRangesBeyondTheFile) {
  const MappedFile file(make("0123456789"), GetParam());
  EXPECT_THROW(text(file, 0, 11), IoError);
  EXPECT_THROW(text(file, 10, 1), IoError);
  EXPECT_THROW(text(file, 11, 0), IoError);
  EXPECT_THROW(text(file, ~uint64_t{0}, 2), IoError);
}

TEST_P(MappedFileTest, RefusesBytesThatTheFileHasLost) {
  const std::string path = make("0123456789");
  const MappedFile file(path, GetParam());
  std::filesystem::resize_file(path, 7);
  EXPECT_EQ(text(file, 0, 7), "0123456");
  EXPECT_THROW(text(file, 5, 3), IoError);
  EXPECT_THROW(text(file, 9, 1), IoError);
}

TEST_P(MappedFileTest, KeepsAFileThatIsReplacedOrRemoved) {
  const std::string path = make("0123456789");
  const MappedFile file(path, GetParam());
  std::filesystem::rename(make("01"), path);
  EXPECT_EQ(text(file, 0, 10), "0123456789");
  std::filesystem::remove(path);
  EXPECT_EQ(text(file, 0, 10), "0123456789");
}

TEST_P(MappedFileTest, OpensAnEmptyFile) {
  const MappedFile file(make(""), GetParam());
  EXPECT_EQ(file.size_bytes(), 0u);
  EXPECT_EQ(text(file, 0, 0), "");
  EXPECT_THROW(text(file, 0, 1), IoError);
}

TEST_P(MappedFileTest, RefusesWhatIsNoFile) {
  EXPECT_THROW(MappedFile(scratch_.file("missing"), GetParam()), IoError);
  EXPECT_THROW(MappedFile(scratch_.path(), GetParam()), IoError);
}

TEST_P(MappedFileTest, MovesWithItsBytes) {
  MappedFile first(make("abc"), GetParam());
  MappedFile second(std::move(first));
  EXPECT_EQ(text(second, 0, 3), "abc");
  MappedFile third(make(""), GetParam());
  third = std::move(second);
  EXPECT_EQ(text(third, 1, 2), "bc");
}

TEST(MappedRange, OnesThatLeaveAFullTableMakeRoom) {
  std::vector<std::byte> bytes(5000);
  std::vector<MappedRange> ranges;
  for (const std::byte& byte : bytes) ranges.emplace_back(&byte, 1, "entered");
  EXPECT_STREQ(file_mapped_at(&bytes.front()), "entered");
  EXPECT_EQ(file_mapped_at(&bytes.back()), nullptr);  // the table is full
  ranges.erase(ranges.begin() + 100, ranges.begin() + 102);
  EXPECT_EQ(file_mapped_at(&bytes[100]), nullptr);
  std::vector<MappedRange> late;
  for (size_t i = 0; i < 3; ++i) late.emplace_back(&bytes[4990 + i], 1, "late");
  EXPECT_STREQ(file_mapped_at(&bytes[4990]), "late");
  EXPECT_STREQ(file_mapped_at(&bytes[4991]), "late");
  EXPECT_EQ(file_mapped_at(&bytes[4992]), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Access, MappedFileTest, ::testing::Values(FileAccess::kMap, FileAccess::kPread));

TEST(MappedFile, GivesItsBytesOnlyWhenMapped) {
  const testing::ScratchDirectory scratch;
  std::ofstream(scratch.file("f")) << "xyz";
  const MappedFile mapped(scratch.file("f"), FileAccess::kMap);
  EXPECT_EQ(std::memcmp(mapped.bytes().data(), "xyz", 3), 0);
  EXPECT_THROW(MappedFile(scratch.file("f"), FileAccess::kPread).bytes(), InternalError);
}

}  // namespace
}  // namespace megatron
