#include "megatron/datasets/temporary_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {
using ::testing::ElementsAre;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(TemporaryFile, IsGoneUnlessItIsRenamed) {
  const testing::ScratchDirectory scratch;
  { const TemporaryFile file(scratch.file("a")); }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre());
  TemporaryFile(scratch.file("a")).rename();
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a"));
  EXPECT_THROW(TemporaryFile(scratch.file("none/a")), IoError);
}

TEST(TemporaryFile, IsAbandonedOnceNoProcessHoldsIt) {
  const testing::ScratchDirectory scratch;
  const TemporaryFile held(scratch.file("a"));
  for (const std::string name : {"a.tmp.1.0", "a.tmp.12", "b.tmp.1.0", "a.tmpx"}) std::ofstream(scratch.file(name));
  remove_abandoned_files(scratch.file("a"));
  EXPECT_THAT(names_in(scratch.path()),
              ElementsAre(std::filesystem::path(held.name()).filename().string(), "a.tmpx", "b.tmp.1.0"));
}

using Builders = std::vector<std::unique_ptr<IndexedDatasetBuilder>>;

TEST(IndexedDatasetBuilder, SeveralAppearTogetherOrWithoutAnIndex) {
  const testing::ScratchDirectory scratch;
  const auto make = [&] {
    Builders builders;
    for (const char* name : {"a", "b"}) {
      builders.push_back(std::make_unique<IndexedDatasetBuilder>(scratch.file(name), IndexedDatasetBuilder::Options{}));
      builders.back()->add_document(std::vector<int64_t>{1}, std::vector<int32_t>{1});
    }
    return builders;
  };
  {
    const Builders builders = make();
    std::filesystem::create_directories(scratch.file("b.bin/x"));
    EXPECT_THROW(IndexedDatasetBuilder::finalize_together(builders), IoError);
  }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a.bin", "b.bin"));
  EXPECT_THROW(make(), IoError) << "a directory of that name is found at once";
  std::filesystem::remove_all(scratch.file("b.bin"));
  IndexedDatasetBuilder::finalize_together(make());
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("a.bin", "a.idx", "b.bin", "b.idx"));
}

}  // namespace
}  // namespace megatron
