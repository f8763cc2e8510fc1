#include "megatron/base/file_fingerprint.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/base/host_memory_files.h"

namespace megatron {
namespace {

std::string fingerprint_of(const std::string& content) {
  HostMemoryFiles files;
  replace_file(files, "file", content);
  return file_fingerprint(files, "file");
}

TEST(FileFingerprint, SaysSizeAndMd5) {
  EXPECT_EQ(fingerprint_of(""), "0 bytes, md5 d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(fingerprint_of("abc"), "3 bytes, md5 900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(file_fingerprint(HostMemoryFiles(), "file"), "missing");
}

TEST(FileFingerprint, SeesEachByteUpTo256KiB) {
  for (const size_t size : {1U, 4096U, 4097U, 262143U, 262144U}) {
    const std::string content(size, 'x');
    for (const size_t place : {size_t{0}, size / 2, size - 1}) {
      std::string other = content;
      other[place] = 'y';
      EXPECT_NE(fingerprint_of(other), fingerprint_of(content)) << place << " of " << size;
    }
  }
}

TEST(FileFingerprint, SeesTheEndsAndWhatChangesThroughoutLongerFiles) {
  const std::string content(1000003, 'x');
  for (const size_t place : {size_t{0}, size_t{4095}, content.size() - 4096, content.size() - 1}) {
    std::string other = content;
    other[place] = 'y';
    EXPECT_NE(fingerprint_of(other), fingerprint_of(content)) << place;
  }
  std::string shifted = content;
  for (size_t i = 0; i < shifted.size(); i += 20000) shifted[i] = 'y';  // blocks are 15809 bytes apart
  EXPECT_NE(fingerprint_of(shifted), fingerprint_of(content));
  EXPECT_NE(fingerprint_of(content + "x"), fingerprint_of(content));
}

}  // namespace
}  // namespace megatron
