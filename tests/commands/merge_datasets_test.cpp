#include "commands/merge_datasets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/build_sequences_per_dataset.h"
#include "commands/exit_code.h"
#include "megatron/base/error.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/sequence_counts.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class MergeDatasets : public ::testing::Test {
 protected:
  MergeDatasets() { fs::create_directory(scratch_.file("parts")); }
  static std::string golden(const std::string& name) { return testing::golden_path("data/indexed/" + name); }
  static std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  }
  void add_part(const std::string& source, const std::string& name) const {
    for (const std::string suffix : {".bin", ".idx"})
      fs::copy_file(golden(source) + suffix, scratch_.file("parts/" + name) + suffix);
  }
  int merge(std::vector<std::string> words = {}) {
    words.insert(words.begin(), {"--input", scratch_.file("parts"), "--output-prefix", scratch_.file("merged")});
    std::ostringstream out, err;
    const int status = merge_datasets_command(words, out, err);
    err_ = err.str();
    return status;
  }
  const testing::ScratchDirectory scratch_;
  std::string err_;
};

TEST_F(MergeDatasets, JoinsDatasetsInTheOrderOfTheirNamesAsMegatron) {
  std::ifstream file(golden("indexed.json"));
  const auto indexed = nlohmann::json::parse(file);
  for (const std::string merged : {"u16_merged", "i32_multimodal_merged"}) {
    fs::remove_all(scratch_.file("parts"));
    fs::create_directory(scratch_.file("parts"));
    int number = 0;
    for (const std::string part : indexed[merged]["parts"])
      add_part(fs::path(part).filename(), std::to_string(number++) + "_part");
    const bool multimodal = indexed[merged]["multimodal"];
    ASSERT_EQ(merge(multimodal ? std::vector<std::string>{"--multimodal"} : std::vector<std::string>{}), 0) << err_;
    for (const std::string suffix : {".bin", ".idx"})
      EXPECT_EQ(content_of(scratch_.file("merged") + suffix), content_of(golden(merged) + suffix)) << merged << suffix;
  }
}

TEST_F(MergeDatasets, LeavesOtherFilesOutAndRejectsWhatCannotBeJoined) {
  add_part("u16_documents", "a");
  std::ofstream(scratch_.file("parts/README.md")) << "text";
  EXPECT_EQ(merge(), 0);
  EXPECT_THAT(err_, HasSubstr("README.md is no part of a dataset and is left out"));
  EXPECT_EQ(content_of(scratch_.file("merged.bin")), content_of(golden("u16_documents.bin")));

  EXPECT_NE(merge({"--output-prefix", scratch_.file("parts/a")}), 0);
  EXPECT_THAT(err_, HasSubstr("would be merged into itself"));
  add_part("i32_documents", "b");
  EXPECT_EQ(merge(), static_cast<int>(ExitCode::kData));
  fs::remove(scratch_.file("parts/b.bin"));
  EXPECT_EQ(merge(), static_cast<int>(ExitCode::kData));
  EXPECT_THAT(err_, HasSubstr("b.bin"));
}

TEST(BuildSequencesPerDataset, WritesEachPrefixOnceInTheOrderOfTheFlags) {
  const testing::ScratchDirectory scratch;
  const std::string indexed = testing::golden_path("data/indexed/");
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"--per-dataset-sequences-path", scratch.file("counts.json")});
    std::ostringstream out, err;
    const int status = build_sequences_per_dataset_command(words, out, err);
    return std::pair(status, out.str() + err.str());
  };
  std::ofstream(scratch.file("words.txt")) << "0.5 " << indexed << "u16_documents 0.5 " << indexed << "blend_1\n";
  const auto [status, text] = run({"--data-path", indexed + "blend_1", indexed + "sentences", indexed + "blend_1",
                                   "--data-args-path", scratch.file("words.txt")});
  ASSERT_EQ(status, 0) << text;
  EXPECT_THAT(text, HasSubstr("Number of unique file prefixes: 3"));
  std::ifstream file(scratch.file("counts.json"));
  const auto counts = nlohmann::ordered_json::parse(file);
  std::vector<std::string> prefixes;
  for (const auto& [prefix, value] : counts.items()) prefixes.push_back(prefix);
  EXPECT_THAT(prefixes, ::testing::ElementsAre(indexed + "blend_1", indexed + "sentences", indexed + "u16_documents"));
  for (const std::string& prefix : prefixes) {
    const IndexedDataset dataset(prefix, {});
    const std::vector<int64_t> expected = {dataset.num_sequences(), dataset.num_documents() + 1};
    EXPECT_EQ(counts[prefix].get<std::vector<int64_t>>(), expected) << prefix;
  }
  EXPECT_EQ(read_sequence_counts(scratch.file("counts.json")), count_sequences(prefixes));

  EXPECT_THAT(run({}).second, HasSubstr("there are no datasets to count"));
  EXPECT_EQ(run({"--data-path", scratch.file("absent")}).first, static_cast<int>(ExitCode::kData));
  std::ofstream(scratch.file("bad.json")) << R"({"a": [1, 2], "b": [1]})";
  EXPECT_THROW(read_sequence_counts(scratch.file("bad.json")), DataError);
}

}  // namespace
}  // namespace megatron
