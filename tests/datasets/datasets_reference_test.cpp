// Random data sets, built by Megatron Core and by us: indices, samples, blends and cache names must be the same.
// Needs a Python with megatron-core, torch and numpy, named by the environment variable MEGATRON_REFERENCE_PYTHON.
// MEGATRON_REFERENCE_SEED chooses other cases.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/datasets/builder_case.h"
#include "tests/datasets/golden.h"
#include "tests/datasets/gpt_case.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using nlohmann::json;

GptDatasetConfig config_of(const json& expected, const std::string& cache) {
  const auto vocab_size = expected["vocab_size"].get<int64_t>();
  GptDatasetConfig config = testing::read_config(expected["config"], vocab_size);
  config.tokenizer.special_tokens = {vocab_size - 1};
  if (!expected["pad"].is_null()) config.tokenizer.pad = expected["pad"].get<int64_t>();
  config.tokenizer.identity.clear();
  for (const json& entry : expected["identity"]) {
    config.tokenizer.identity.emplace_back(entry[0].get<std::string>(), entry[1].get<std::string>());
  }
  config.path_to_cache = cache;
  return config;
}

TEST(DatasetsReference, RandomDataSetsAreMegatrons) {
  const char* python = std::getenv("MEGATRON_REFERENCE_PYTHON");
  if (!python) GTEST_SKIP() << "Set MEGATRON_REFERENCE_PYTHON to a Python that has megatron-core, torch and numpy.";
  const char* seed = std::getenv("MEGATRON_REFERENCE_SEED");
  const testing::ScratchDirectory reference, cache;
  const std::string command = std::string(python) + " " + testing::source_path("tests/datasets/reference_compare.py ") +
                              reference.path() + " --seed " + (seed ? seed : "1");
  ASSERT_EQ(std::system(command.c_str()), 0) << command;

  const testing::WorkingDirectory directory(reference.path());
  const json cases = json::parse(testing::read_bytes("cases.json"));
  ASSERT_FALSE(cases["gpt"].empty());
  ASSERT_FALSE(cases["blend"].empty());
  for (const json& expected : cases["gpt"]) {
    SCOPED_TRACE(expected["prefix"].get<std::string>() + " " + expected["config"].dump());
    testing::expect_equal_case(expected, config_of(expected, cache.path()));
  }
  for (const json& expected : cases["blend"]) {
    SCOPED_TRACE(expected["config"].dump());
    const GptDatasets datasets =
        build_gpt_datasets(config_of(expected, cache.path()), testing::read_sources(expected["config"]),
                           testing::read_sizes(expected["sizes"]), {});
    testing::expect_equal_datasets(datasets, expected);
  }
}

}  // namespace
}  // namespace megatron
