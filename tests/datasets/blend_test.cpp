// Splits, blend lists and blending orders against tests/golden/data/blend.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>

#include "megatron/base/error.h"
#include "megatron/datasets/blend_index.h"
#include "megatron/datasets/data_paths.h"
#include "megatron/datasets/sample_counts.h"
#include "tests/datasets/golden.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden;
using testing::is_error;
using testing::list;
using testing::ScratchDirectory;
using testing::write_bytes;

std::vector<int64_t> elements(const NpyArray& array) {
  std::vector<int64_t> values(static_cast<size_t>(array.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = array[static_cast<int64_t>(i)];
  return values;
}

TEST(BlendIndex, NormalizesWeightsBitForBit) {
  for (const json& expected : golden("blend/indices.json")["normalize"]) {
    EXPECT_EQ(normalize_weights(list<double>(expected["weights"])), list<double>(expected["result"]));
  }
}

/// The rule as it is written down: a look at all datasets at each step.
std::vector<int64_t> order_by_looking_at_all(const std::vector<double>& weights, const std::vector<int64_t>& limits,
                                             int64_t size) {
  std::vector<int64_t> order, taken(weights.size(), 0);
  for (int64_t i = 0; i < size; ++i) {
    size_t chosen = weights.size();
    double largest = 0;
    for (size_t j = 0; j < weights.size(); ++j) {
      if (taken[j] == limits[j]) continue;
      const double lag = weights[j] * static_cast<double>(std::max<int64_t>(i, 1)) - static_cast<double>(taken[j]);
      if (chosen == weights.size() || lag > largest) chosen = j, largest = lag;
    }
    order.push_back(static_cast<int64_t>(chosen));
    ++taken[chosen];
  }
  return order;
}

TEST(BlendIndex, ManyDatasetsAreDrawnInTheOrderOfALookAtAllOfThem) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random() % (round % 10 == 0 ? 300 : 20);
    const int64_t size = 1 + random() % 3000;
    std::vector<double> weights(n);
    for (double& weight : weights) {
      switch (round % 4) {  // alike, nearly alike, of few values, of any size
        case 0:
          weight = 1;
          break;
        case 1:
          weight = 1 + static_cast<double>(random() % 3) * 1e-15;
          break;
        case 2:
          weight = static_cast<double>(1 + random() % 3);
          break;
        default:
          weight = std::pow(10.0, -static_cast<double>(random() % 6)) * static_cast<double>(1 + random() % 1000);
      }
    }
    weights = normalize_weights(weights);
    EXPECT_EQ(elements(build_blending_index(weights, size).dataset_index),
              order_by_looking_at_all(weights, std::vector<int64_t>(n, size), size))
        << round;

    std::vector<int64_t> counts(n);
    for (int64_t& count : counts) count = random() % (round % 2 == 0 ? 200 : 3);
    counts[0] += 1;
    const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    std::vector<double> fractions;
    for (const int64_t count : counts) fractions.push_back(static_cast<double>(count) / static_cast<double>(sum));
    EXPECT_EQ(elements(build_exhaustive_blending_index(counts).dataset_index),
              order_by_looking_at_all(fractions, counts, sum))
        << round;
  }
}

TEST(BlendIndex, DrawsInMegatronsOrder) {
  const json& indices = golden("blend/indices.json");
  for (const json& expected : indices["blending_indices"]) {
    const BlendIndex index = build_blending_index(list<double>(expected["weights"]), expected["size"].get<int64_t>());
    EXPECT_EQ(elements(index.dataset_index), list<int64_t>(expected["dataset_index"]));
    EXPECT_EQ(elements(index.dataset_sample_index), list<int64_t>(expected["dataset_sample_index"]));
  }
  for (const json& expected : indices["exhaustive_indices"]) {
    const BlendIndex index = build_exhaustive_blending_index(list<int64_t>(expected["counts"]));
    EXPECT_EQ(elements(index.dataset_index), list<int64_t>(expected["dataset_index"]));
    EXPECT_EQ(elements(index.dataset_sample_index), list<int64_t>(expected["dataset_sample_index"]));
  }
}

TEST(BlendIndex, KeepsMegatronsOrderWhereRoundingDecides) {
  for (const json& expected : golden("blend/indices.json")["long"]) {
    const BlendIndex index = build_blending_index(list<double>(expected["weights"]), expected["size"].get<int64_t>());
    EXPECT_EQ(md5_hex(index.dataset_index.bytes()), expected["dataset_index_md5"].get<std::string>());
    EXPECT_EQ(md5_hex(index.dataset_sample_index.bytes()), expected["dataset_sample_index_md5"].get<std::string>());
    const std::string file = testing::read_bytes(testing::kGoldenData + "/" + expected["file"].get<std::string>());
    EXPECT_EQ(testing::md5_of(file), expected["dataset_index_md5"].get<std::string>());
  }
}

TEST(BlendIndex, SizesMembersAsMegatron) {
  for (const json& expected : golden("blend/parsing.json")["sizes"]) {
    for (size_t j = 0; j < expected["weights"].size(); ++j) {
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(blend_member_size(expected["weights"][j].get<double>(), expected["sizes"][i].get<int64_t>(),
                                    expected["surplus"].get<double>()),
                  expected["result"][j][i].get<int64_t>());
      }
    }
  }
}

TEST(Split, SplitsLikeMegatronAndRejectsWhatFailsThere) {
  for (const json& expected : golden("blend/parsing.json")["split"]) {
    const auto text = expected["string"].get<std::string>();
    SCOPED_TRACE(text);
    const json& result = expected["result"];
    if (is_error(result)) {
      EXPECT_THROW(parse_split(text), ConfigError);
      continue;
    }
    const SplitMatrix matrix = parse_split(text);
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_EQ(matrix[i].has_value(), !result["matrix"][i].is_null());
      if (!matrix[i].has_value()) continue;
      EXPECT_EQ(matrix[i]->lower, result["matrix"][i][0].get<double>());
      EXPECT_EQ(matrix[i]->upper, result["matrix"][i][1].get<double>());
      for (const auto& [num_elements, ranges] : result["ranges"].items()) {
        const IndexRange range = split_range(*matrix[i], std::stoll(num_elements));
        EXPECT_EQ(range.begin, ranges[i][0].get<int64_t>());
        EXPECT_EQ(range.end, ranges[i][1].get<int64_t>());
      }
    }
  }
}

TEST(Blend, ParsesListsLikeMegatronAndRejectsBadWeights) {
  for (const json& expected : golden("blend/parsing.json")["blend_list"]) {
    if (expected["items"].is_null()) continue;  // no flag, so no blend to parse
    SCOPED_TRACE(expected.dump());
    const std::vector<std::string> items = list<std::string>(expected["items"]);
    const json& result = expected["result"];
    // Megatron lets "nan" and "inf" through and fails later.
    const bool finite = is_error(result) || result[1].is_null() ||
                        std::all_of(result[1].begin(), result[1].end(), [](const json& w) { return w.is_number(); });
    if (is_error(result) || !finite) {
      EXPECT_THROW(parse_blend(items), ConfigError);
      continue;
    }
    const Blend blend = parse_blend(items);
    EXPECT_EQ(blend.prefixes, list<std::string>(result[0]));
    ASSERT_EQ(blend.weights.has_value(), !result[1].is_null());
    if (blend.weights.has_value()) {
      EXPECT_EQ(*blend.weights, list<double>(result[1]));
    }
  }
}

TEST(Blend, ReadsPairsInOneQuotedItem) {
  const Blend blend = parse_blend(std::vector<std::string>{" 0.3 a\t0.7 b"});
  EXPECT_EQ(blend.prefixes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(blend.weights, (std::vector<double>{0.3, 0.7}));
  for (const std::string path : {"my data", "my data set", "0.3 a b", "1"})
    EXPECT_EQ(parse_blend(std::vector<std::string>{path}).prefixes, std::vector<std::string>{path});
}

TEST(Blend, ReadsListsFromFiles) {
  const ScratchDirectory scratch;
  write_bytes(scratch.file("args"), "0.3 a\n0.7\tb\n");
  EXPECT_EQ(read_data_args_file(scratch.file("args")), (std::vector<std::string>{"0.3", "a", "0.7", "b"}));
  EXPECT_THROW(read_data_args_file(scratch.file("missing")), DataError);

  write_bytes(scratch.file("splits.json"), R"({"train": ["1", "a", "3", "b"], "valid": "c d", "test": null})");
  const PerSplit<std::optional<Blend>> blends = read_per_split_data_args_file(scratch.file("splits.json"));
  EXPECT_EQ(blends[0]->weights, (std::vector<double>{1, 3}));
  EXPECT_EQ(blends[1]->prefixes, (std::vector<std::string>{"c", "d"}));
  EXPECT_FALSE(blends[2].has_value());
}

TEST(Blend, ListsThatAreNotRegularFilesOrHugeAreRejectedWithoutAWait) {
  const ScratchDirectory scratch;
  ASSERT_EQ(::mkfifo(scratch.file("fifo").c_str(), 0600), 0);
  write_bytes(scratch.file("huge"), "a");
  std::filesystem::resize_file(scratch.file("huge"), uint64_t{1} << 40);  // takes no room on the disk
  const auto message_of = [](const std::string& path) -> std::string {
    try {
      read_data_args_file(path);
      return "was read";
    } catch (const DataError& error) {
      return error.what();
    }
  };
  for (const std::string& path : {std::string("/"), std::string("/dev/zero"), scratch.file("fifo")})
    EXPECT_NE(message_of(path).find(path + ": is not a regular file"), std::string::npos) << message_of(path);
  EXPECT_NE(message_of(scratch.file("huge")).find("has 1099511627776 bytes"), std::string::npos);
  EXPECT_NE(message_of(scratch.file("missing")).find("No such file"), std::string::npos)
      << message_of(scratch.file("missing"));
}

TEST(Split, TakesNeitherNanNorInf) {
  for (const char* text : {"nan,1,1", "1,inf,1", "9,1,-nan"}) EXPECT_THROW(parse_split(text), ConfigError) << text;
}

TEST(Blend, RejectsPerSplitFilesOfAnotherShape) {
  const ScratchDirectory scratch;
  for (const char* text :
       {"", "[]", "{", R"({"train": null, "valid": null})", R"({"train": 3, "valid": null, "test": null})",
        R"({"train": [1], "valid": null, "test": null})"}) {
    write_bytes(scratch.file("splits.json"), text);
    EXPECT_THROW(read_per_split_data_args_file(scratch.file("splits.json")), DataError) << text;
  }
}

TEST(SampleCounts, AreMegatrons) {
  // Megatron's test_prepare_cache.
  const RunLength run = {.train_iters = 4, .global_batch_size = 8, .eval_iters = 2, .eval_interval = 2};
  EXPECT_EQ(count_samples(run), (SampleCounts{32, 48, 16}));
  RunLength other = run;
  other.train_samples = 1000;
  other.eval_global_batch_size = 4;
  other.start_eval_at_iter = 3;
  EXPECT_EQ(count_samples(other), (SampleCounts{1000, 16, 8}));
  other.full_validation = true;
  EXPECT_EQ(count_samples(other), (SampleCounts{1000, std::nullopt, 8}));
  EXPECT_EQ(count_samples({.train_iters = 4, .global_batch_size = 8, .eval_iters = 2, .skip_train = true}),
            (SampleCounts{32, 16, 16}));
  EXPECT_THROW(count_samples({.train_iters = 4, .global_batch_size = 8}), ConfigError);
  EXPECT_EQ(count_samples({.train_iters = 4, .global_batch_size = 8, .eval_iters = 0}), (SampleCounts{32, 0, 0}));
}

}  // namespace
}  // namespace megatron
