#include "megatron/dist_checkpointing/zip_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "tests/dist_checkpointing/memory_file_system.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string little_endian(uint64_t value, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

/// Entries and comment of an archive with one stored entry "a" that holds "hello".
struct Archive {
  uint16_t method = 0, flags = 0;
  uint64_t bytes = 5, offset = 0;
  bool in_zip64_field = false;
  std::string comment;

  std::string build() const {
    const std::string payload = "hello";
    const uint32_t crc = crc32(std::as_bytes(std::span(payload)), 0);
    const auto fixed = [&](uint64_t value) { return little_endian(in_zip64_field ? 0xFFFFFFFF : value, 4); };
    std::string field;
    if (in_zip64_field)
      field = little_endian(1, 2) + little_endian(24, 2) + little_endian(bytes, 8) + little_endian(bytes, 8) +
              little_endian(offset, 8);
    const std::string local = little_endian(0x04034b50, 4) + std::string(22, '\0') + little_endian(1, 2) +
                              little_endian(0, 2) + "a" + payload;
    const std::string directory = little_endian(0x02014b50, 4) + std::string(4, '\0') + little_endian(flags, 2) +
                                  little_endian(method, 2) + std::string(4, '\0') + little_endian(crc, 4) +
                                  fixed(bytes) + fixed(bytes) + little_endian(1, 2) + little_endian(field.size(), 2) +
                                  std::string(10, '\0') + fixed(offset) + "a" + field;
    const std::string end = little_endian(0x06054b50, 4) + std::string(4, '\0') + little_endian(1, 2) +
                            little_endian(1, 2) + little_endian(directory.size(), 4) + little_endian(local.size(), 4) +
                            little_endian(comment.size(), 2) + comment;
    return local + directory + end;
  }
};

void expect_refused(const Archive& archive, const std::string& reason) {
  const MemoryFile file(archive.build());
  EXPECT_THAT(
      [&] {
        const ZipReader zip(file, "test.zip");
        zip.read(*zip.find("a"));
      },
      ThrowsMessage<CheckpointError>(HasSubstr(reason)));
}

TEST(ZipReader, ReadsPlainAndZip64Entries) {
  for (const bool in_zip64_field : {false, true}) {
    const MemoryFile file(Archive{.in_zip64_field = in_zip64_field}.build());
    const ZipReader zip(file, "test.zip");
    ASSERT_EQ(zip.entries().size(), 1u);
    EXPECT_EQ(zip.read(zip.entries()[0]), "hello");
    EXPECT_EQ(zip.find("b"), nullptr);
  }
}

TEST(ZipReader, RefusesWhatTorchNeverWritesOrCannotBe) {
  expect_refused({.method = 8}, "compressed or encrypted");
  expect_refused({.flags = 1}, "compressed or encrypted");
  expect_refused({.comment = "x"}, "does not end like a zip archive");
  for (const bool in_zip64_field : {false, true}) {
    expect_refused({.bytes = 4, .in_zip64_field = in_zip64_field}, "has checksum");
    expect_refused({.bytes = 7, .in_zip64_field = in_zip64_field}, "has checksum");  // runs into the directory
    expect_refused({.bytes = 1000, .in_zip64_field = in_zip64_field}, "reaches beyond the end");
    expect_refused({.offset = 3, .in_zip64_field = in_zip64_field}, "has no header");
  }
  expect_refused({.bytes = ~uint64_t{0}, .in_zip64_field = true}, "reaches beyond the end");
  expect_refused({.offset = ~uint64_t{0}, .in_zip64_field = true}, "reaches beyond the end");
}

TEST(ZipWriter, AlignsPayloadsAndKeepsWhatItIsGiven) {
  MemoryFileSystem files;
  const auto file = files.open_for_writing("a.zip", WriteMode::kTruncate);
  ZipWriter writer(*file);
  std::vector<std::string> contents = {"", "x", std::string(63, 'y'), std::string(200'000, 'z')};
  for (size_t i = 0; i < contents.size(); ++i) writer.add(std::string(i + 1, 'n'), contents[i]);
  const int64_t bytes = writer.finish();
  const auto read = files.open_for_reading("a.zip");
  EXPECT_EQ(read->size(), bytes);
  const ZipReader zip(*read, "a.zip");
  ASSERT_EQ(zip.entries().size(), contents.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    EXPECT_EQ(zip.payload_offset(zip.entries()[i]) % ZipWriter::kAlignmentBytes, 0);
    EXPECT_EQ(zip.read(zip.entries()[i]), contents[i]);
  }
}

TEST(ZipWriter, HoldsCallersToTheAnnouncedSize) {
  MemoryFileSystem files;
  const auto file = files.open_for_writing("a.zip", WriteMode::kTruncate);
  const std::string text = "abc";
  ZipWriter writer(*file);
  writer.begin("a", 2);
  EXPECT_THROW(writer.append(std::as_bytes(std::span(text))), InternalError);
  EXPECT_THROW(writer.end(), InternalError);
  EXPECT_THROW(writer.begin("b", 0), InternalError);
}

}  // namespace
}  // namespace megatron
