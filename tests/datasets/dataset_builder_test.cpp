// Whole builder cases against tests/golden/data/blend/builder.json, and the cache files that come with them.
#include "megatron/datasets/dataset_builder.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/datasets/blended_dataset.h"
#include "tests/datasets/builder_case.h"
#include "tests/datasets/golden.h"
#include "tests/datasets/gpt_case.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::is_error;
using testing::kGoldenData;
using testing::list;
using testing::read_bytes;

/// The vocabulary of the builder cases: that of a data set whose description lies in the cache that Megatron wrote.
int64_t builder_vocab_size() {
  for (const auto& [file, md5] : golden("blend/cache.json").items())
    if (file.ends_with("GPTDataset-train-description.txt"))
      return std::stoll(
          json::parse(read_bytes(kGoldenData + "/cache/" + file))["tokenizer"]["vocab_size"].get<std::string>());
  throw DataError("blend/cache.json names no description of a data set");
}

GptDatasetConfig make_config(const std::string& cache, const json& expected) {
  GptDatasetConfig config;
  config.sequence_length = expected["sequence_length"].get<int64_t>();
  config.random_seed = expected["random_seed"].get<int64_t>();
  config.tokenizer = testing::null_tokenizer(builder_vocab_size());
  config.path_to_cache = cache;
  return config;
}
/// Makes the configuration that every builder case has.
GptDatasetConfig make_config(const std::string& cache) {
  return make_config(cache, golden("blend/builder.json")["single"]);
}

/// One prefix, as a case of tests/golden/data/gpt has it.
GptDataSources read_prefix(const json& expected) {
  return {.blend = Blend{{expected["prefix"].get<std::string>()}, std::nullopt},
          .split = expected["config"]["split"].get<std::string>()};
}

TEST(DatasetBuilder, EveryCaseIsMegatrons) {
  const testing::WorkingDirectory directory(kGoldenData);
  const json& cases = golden("blend/builder.json");
  int num_built = 0;
  for (const auto& [name, expected] : cases.items()) {
    if (is_error(expected)) continue;
    for (int num_threads : {1, 3}) {
      SCOPED_TRACE(name);
      const testing::ScratchDirectory scratch;
      GptDatasetConfig config = make_config(scratch.path(), expected);
      config.num_dataset_builder_threads = num_threads;
      config.mid_level_dataset_surplus = expected["config"].value("mid_level_dataset_surplus", 0.005);
      const GptDataSources sources = testing::read_sources(expected["config"]);
      const SampleCounts sizes = testing::read_sizes(expected["sizes"]);
      testing::expect_equal_datasets(build_gpt_datasets(config, sources, sizes, {}), expected);
      testing::expect_equal_datasets(build_gpt_datasets(config, sources, sizes, {}), expected);  // from the cache
    }
    ++num_built;
  }
  EXPECT_GT(num_built, 0);
}

struct Mistake {
  const char* name;
  SampleCounts sizes;
  GptDataSources sources;
  const char* text;
};

TEST(DatasetBuilder, RejectsWhatFailsInMegatronWithTheReason) {
  const testing::WorkingDirectory directory(kGoldenData);
  const testing::ScratchDirectory scratch;
  const json& cases = golden("blend/builder.json");
  const std::vector<std::string> three = {"indexed/blend_0", "indexed/blend_1", "indexed/blend_2"};
  const std::vector<std::string> seven = {"indexed/blend_0", "indexed/blend_1", "indexed/blend_2", "indexed/blend_3",
                                          "indexed/blend_4", "indexed/blend_5", "indexed/blend_6"};
  const SampleCounts some = {9, 3, 3}, none_for_train = {std::nullopt, 3, 3}, passes = {};
  const std::vector<Mistake> mistakes = {
      {"unweighted_member_without_samples",
       passes,
       {.blend = Blend{seven, std::nullopt}, .split = "9,0.5,0.5"},
       "has no sample in the"},
      {"size_none_with_weights",
       none_for_train,
       {.blend = Blend{three, {{1, 1, 1}}}, .split = "8,1,1"},
       "the train blend has weights, so its number of samples must be set"},
      {"weight_count", some, {.blend = Blend{three, {{1, 1}}}, .split = "8,1,1"}, "has 3 data paths and 2 weights"},
      {"no_split", some, {.blend = Blend{three, std::nullopt}}, "--data-path needs --split"},
      {"per_split_with_split",
       some,
       {.split = "8,1,1", .blend_per_split = {Blend{three, std::nullopt}}},
       "--split divides --data-path"},
      {"zero_weight",
       some,
       {.blend = Blend{three, {{1, 0, 1}}}, .split = "8,1,1"},
       "weight 0 of indexed/blend_1 in the blend"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_TRUE(is_error(cases[mistake.name])) << mistake.name;
    try {
      build_gpt_datasets(make_config(scratch.path()), mistake.sources, mistake.sizes, {});
      ADD_FAILURE() << mistake.name << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(mistake.text), std::string::npos) << error.what();
    }
  }
}

TEST(DatasetBuilder, ReportsAllMistakesAtOnce) {
  GptDatasetConfig config = make_config("");
  config.mid_level_dataset_surplus = -1;
  try {
    build_gpt_datasets(config, {.mock_data = true, .blend = Blend{{"a", "b"}, {{1, -2}}}}, {1, 1, 1}, {});
    FAIL();
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"several of --mock-data", "--data-path needs --split", "weight -2 of b", "--mid-level-dataset-surplus -1"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(DatasetBuilder, ABlendThatNeedsMoreThanAMemberHasReportsBothNumbers) {
  const testing::WorkingDirectory directory(kGoldenData);
  const testing::ScratchDirectory scratch;
  const json& expected = golden("blend/oversampling.json");
  EXPECT_TRUE(is_error(expected["result"]));
  const GptDatasetConfig config = make_config(scratch.path());
  std::vector<std::unique_ptr<TokenSource>> sources;
  std::vector<std::unique_ptr<MidLevelDataset>> members;
  for (const char* prefix : {"indexed/blend_3", "indexed/blend_4"}) {
    GptDatasets one =
        build_gpt_datasets(config, {.blend = Blend{{prefix}, std::nullopt}, .split = "1,0,0"}, {3, {}, {}}, {});
    sources.push_back(std::move(one.sources[0]));
    members.emplace_back(dynamic_cast<GptDataset*>(one.train.release()));
  }
  EXPECT_EQ(members[0]->size(), expected["lengths"][0].get<int64_t>());
  try {
    BlendedDataset(std::move(members),
                   {.weights = list<double>(expected["weights"]),
                    .size = expected["size"].get<int64_t>(),
                    .mid_level_dataset_surplus = 0.005},
                   {});
    FAIL();
  } catch (const ConfigError& error) {
    const std::vector<double> weights = list<double>(expected["weights"]);
    EXPECT_EQ(error.what(),
              fmt::format("the train blend oversamples indexed/blend_3: it takes {} samples of it, which has {}. Raise "
                          "--mid-level-dataset-surplus from 0.005 two- or tenfold.",
                          expected["size"].get<double>() * weights[0] / (weights[0] + weights[1]),
                          expected["lengths"][0].get<int64_t>()));
  }
}

/// Names and contents of the files in a directory.
std::map<std::string, std::string> files_in(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    files[entry.path().filename()] = read_bytes(entry.path());
  }
  return files;
}

TEST(DatasetBuilder, WritesMegatronsCacheFilesByteForByte) {
  const testing::WorkingDirectory directory(kGoldenData);
  const testing::ScratchDirectory scratch;
  const GptDatasetConfig config = make_config(scratch.path());
  const Blend two = {{"indexed/blend_3", "indexed/blend_4"}, std::nullopt};
  const json &three = golden("blend/builder.json")["weighted_3"], &big = golden("gpt/big.json")["big"];
  build_gpt_datasets(config, testing::read_sources(three["config"]), testing::read_sizes(three["sizes"]), {});
  build_gpt_datasets(config, {.blend = two, .split = "8,1,1"}, {}, {});
  GptDatasetConfig config_of_big = testing::read_config(big["config"], testing::vocab_size_of(big));
  config_of_big.path_to_cache = scratch.path();
  build_gpt_datasets(config_of_big, read_prefix(big), testing::read_sizes(big["sizes"]), {});

  const auto ours = files_in(scratch.path()), theirs = files_in(kGoldenData + "/cache");
  EXPECT_EQ(ours.size(), theirs.size());
  for (const auto& [name, bytes] : theirs) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ(ours.at(name), bytes) << name;
  }
}

TEST(DatasetBuilder, TakesMegatronsCacheWithoutBuilding) {
  const testing::WorkingDirectory directory(kGoldenData);
  std::vector<std::string> messages;
  const MessageLog log = {[&](const std::string& text) { messages.push_back(text); },
                          [&](const std::string& text) { messages.push_back("warning: " + text); }};
  const json& expected = golden("gpt/big.json")["big"];
  GptDatasetConfig config = testing::read_config(expected["config"], testing::vocab_size_of(expected));
  config.path_to_cache = kGoldenData + "/cache";
  config.write_cache = false;
  testing::expect_equal_case(expected, config);
  build_gpt_datasets(config, read_prefix(expected), testing::read_sizes(expected["sizes"]), log);
  for (const std::string& message : messages) {
    EXPECT_EQ(message.find("Build"), std::string::npos) << message;
    EXPECT_EQ(message.find("warning"), std::string::npos) << message;
  }
  EXPECT_FALSE(messages.empty());
}

}  // namespace
}  // namespace megatron
