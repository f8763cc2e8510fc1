#include "megatron/datasets/npy_array.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/base/mapped_ranges.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using testing::kGoldenData;
using testing::read_bytes;
using testing::ScratchDirectory;
using testing::write_bytes;

TEST(NpyArray, WritesAndReadsTheBytesThatNumpyWrites) {
  const ScratchDirectory scratch;
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenData + "/cache")) {
    if (entry.path().extension() != ".npy") continue;
    const NpyArray array = NpyArray::load(entry.path());
    array.save(scratch.file("copy.npy"));
    EXPECT_EQ(read_bytes(scratch.file("copy.npy")), read_bytes(entry.path())) << entry.path();
    ++num_files;
  }
  EXPECT_GT(num_files, 0);
}

TEST(NpyArray, KeepsValuesOfEveryDtypeThroughAFile) {
  const ScratchDirectory scratch;
  for (NpyDtype dtype : {NpyDtype::kInt16, NpyDtype::kInt32, NpyDtype::kUInt32, NpyDtype::kInt64}) {
    NpyArray array(dtype, {3, 2});
    switch (dtype) {
      case NpyDtype::kInt16:
        array.values<int16_t>()[4] = -7;
        break;
      case NpyDtype::kInt32:
        array.values<int32_t>()[4] = -7;
        break;
      case NpyDtype::kUInt32:
        array.values<uint32_t>()[4] = 4000000000u;
        break;
      case NpyDtype::kInt64:
        array.values<int64_t>()[4] = -(int64_t{1} << 40);
        break;
    }
    array.save(scratch.file("a.npy"));
    const NpyArray read = NpyArray::load(scratch.file("a.npy"));
    EXPECT_EQ(read.dtype(), dtype);
    EXPECT_EQ(read.shape(), (std::vector<int64_t>{3, 2}));
    for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(read[i], array[i]);
  }
}

TEST(NpyArray, MapsOnlyFilesOfMoreThanAPage) {
  const ScratchDirectory scratch;
  const std::string small = scratch.file("small.npy"), large = scratch.file("large.npy");
  NpyArray(NpyDtype::kInt32, {900}).save(small);
  NpyArray(NpyDtype::kInt32, {1100}).save(large);
  NpyArray read = NpyArray::load(small);
  EXPECT_EQ(file_mapped_at(read.bytes().data()), nullptr);
  read.values<int32_t>()[899] = 5;
  EXPECT_EQ(read[899], 5);
  const NpyArray mapped = NpyArray::load(large);
  EXPECT_EQ(file_mapped_at(mapped.bytes().data()), large);
}

TEST(NpyArray, ReadsHeadersOfOtherWriters) {
  const ScratchDirectory scratch;
  const auto file = [](std::string dictionary, int version) {
    std::string bytes = std::string("\x93NUMPY") + static_cast<char>(version) + '\0';
    dictionary += '\n';
    bytes += static_cast<char>(dictionary.size());
    bytes.append(version == 1 ? 1 : 3, '\0');
    return bytes + dictionary + std::string("\5\0\0\0\6\0\0\0", 8);
  };
  for (const std::string& bytes : {file("{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<i4\"}", 1),
                                   file("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", 2),
                                   file("{ 'descr' : '<u4' , 'fortran_order' : False , 'shape' : ( 2 ) }   ", 3)}) {
    write_bytes(scratch.file("a.npy"), bytes);
    const NpyArray array = NpyArray::load(scratch.file("a.npy"));
    EXPECT_EQ(array.num_elements(), 2);
    EXPECT_EQ(array[1], 6);
  }
}

TEST(NpyArray, RejectsDamagedFiles) {
  const ScratchDirectory scratch;
  NpyArray array(NpyDtype::kInt32, {5, 2});
  array.save(scratch.file("good.npy"));
  const std::string good = read_bytes(scratch.file("good.npy"));
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string bytes = good;
    return bytes.replace(bytes.find(from), from.size(), to);
  };
  const std::vector<std::string> damaged = {"",
                                            good.substr(0, 7),
                                            good.substr(0, 100),
                                            good.substr(0, good.size() - 1),
                                            "X" + good.substr(1),
                                            replaced(std::string("\x01\x00", 2), "\x09"),
                                            replaced("<i4", "<f4"),
                                            replaced("<i4", ">i4"),
                                            replaced("False", "True "),
                                            replaced("(5, 2)", "(-5,2)"),
                                            replaced("(5, 2)", "(x, 2)"),
                                            replaced("(5, 2), ", "(2305843009213693951, 9223372036854775807)"),
                                            replaced("shape", "shepa")};
  for (size_t i = 0; i < damaged.size(); ++i) {
    write_bytes(scratch.file("bad.npy"), damaged[i]);
    EXPECT_THROW(NpyArray::load(scratch.file("bad.npy")), DataError) << "case " << i;
  }
  EXPECT_THROW(NpyArray::load(scratch.file("missing.npy")), IoError);
}

TEST(NpyArray, AnyByteOfTheHeaderAndAnyLengthIsReadOrRejected) {
  const ScratchDirectory scratch;
  NpyArray(NpyDtype::kInt64, {3}).save(scratch.file("good.npy"));
  const std::string good = read_bytes(scratch.file("good.npy"));
  const std::string path = scratch.file("bad.npy");
  int num_read = 0;
  const auto load = [&](const std::string& bytes) {
    write_bytes(path, bytes);
    try {
      const NpyArray array = NpyArray::load(path);
      ASSERT_LE(array.num_elements(), std::ssize(bytes));
      std::vector<int64_t> elements;
      for (int64_t k = 0; k < array.num_elements(); ++k) elements.push_back(array[k]);  // reads nothing outside
      ++num_read;
    } catch (const DataError& error) {
      EXPECT_NE(std::string(error.what()).find("bad.npy"), std::string::npos) << error.what();
    }
  };
  for (size_t size = 0; size <= good.size(); ++size) load(good.substr(0, size));
  EXPECT_EQ(num_read, 1);
  const size_t header_size = good.size() - 24;
  for (size_t i = 0; i < header_size; ++i)
    for (const char wrong : {'\0', '\'', '(', ')', ',', '9', '-', '\x7f', '\xff'}) {
      std::string bytes = good;
      bytes[i] = wrong;
      load(bytes);
    }
}

}  // namespace
}  // namespace megatron
