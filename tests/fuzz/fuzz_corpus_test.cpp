// The fuzz targets on files of the repository, and on damaged copies of them: what libFuzzer does, for some seconds and
// without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

constexpr size_t kLargestSeed = 64 << 10;
constexpr int kManyCopies = 20'000, kFewCopies = 300;

struct FuzzCase {
  const char* name;  // of its folder below tests/fuzz/corpus
  void (*target)(std::span<const std::byte>);
  const char* golden;                // a folder of files below tests/golden
  const char* ending;                // of their names
  int damaged_copies = kManyCopies;  // few where the target reads a file of the disk
};
void PrintTo(const FuzzCase& one, std::ostream* out) { *out << one.name; }

std::vector<std::string> files_below(const std::string& folder, std::string_view ending) {
  std::vector<std::string> contents;
  if (!std::filesystem::exists(folder)) return contents;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().string().ends_with(ending) && entry.file_size() <= kLargestSeed)
      paths.push_back(entry.path());
  std::ranges::sort(paths);
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return contents;
}

/// Bytes overwritten, a piece removed, repeated or taken from another file, or the end cut off.
std::string damaged(const std::vector<std::string>& seeds, std::mt19937& random) {
  const auto below = [&](size_t end) { return end == 0 ? 0 : random() % end; };
  std::string input = seeds[below(seeds.size())];
  for (size_t times = 1 + below(4); times > 0; --times) {
    const size_t place = below(input.size()), length = std::min(1 + below(16), input.size() - place);
    const std::string& other = seeds[below(seeds.size())];
    switch (random() % 5) {
      case 0:
        if (!input.empty()) input[place] = static_cast<char>(random());
        break;
      case 1:
        input.erase(place, length);
        break;
      case 2:
        input.insert(place, input.substr(place, length));
        break;
      case 3:
        input.insert(place, other.substr(below(other.size() + 1), length));
        break;
      default:
        input.resize(place);
    }
  }
  return input;
}

class FuzzCorpus : public ::testing::TestWithParam<FuzzCase> {
 protected:
  static void run(const std::string& input) {
    try {
      GetParam().target(std::as_bytes(std::span(input)));
    } catch (const Error&) {  // the input is no such file
    }
  }
};

TEST_P(FuzzCorpus, AndDamagedCopiesOfItAreReadOrRefused) {
  std::vector<std::string> seeds = files_below(golden_path(GetParam().golden), GetParam().ending);
  ASSERT_FALSE(seeds.empty());
  for (std::string& found : files_below(source_path(std::string("tests/fuzz/corpus/") + GetParam().name), ""))
    seeds.push_back(std::move(found));
  for (const std::string& seed : seeds) run(seed);
  std::mt19937 random(1);
  for (int i = 0; i < GetParam().damaged_copies; ++i) run(damaged(seeds, random));
}

INSTANTIATE_TEST_SUITE_P(
    Targets, FuzzCorpus,
    ::testing::Values(FuzzCase{"safetensors", fuzz_safetensors, "checkpoint/safetensors", ".safetensors"},
                      FuzzCase{"pickle", fuzz_pickle, "checkpoint/torch_save", ".pickle"},
                      FuzzCase{"torch_file", fuzz_torch_file, "checkpoint/torch_save", ".pt"},
                      FuzzCase{"metadata", fuzz_metadata, "checkpoint", ".metadata"},
                      FuzzCase{"config_json", fuzz_config_json, "hf", "config.json"},
                      FuzzCase{"tokenizer_json", fuzz_tokenizer_json, "tokenizers/hf", ".json"},
                      FuzzCase{"chat_template", fuzz_chat_template, "tokenizers/chat", ".jinja"},
                      FuzzCase{"json_lines", fuzz_json_lines, "tokenizers/preprocess", ".jsonl", kFewCopies},
                      FuzzCase{"token_index", fuzz_token_index, "data/indexed", ".idx", kFewCopies},
                      FuzzCase{"npy", fuzz_npy, "data/cache", ".npy", kFewCopies}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace megatron::testing
