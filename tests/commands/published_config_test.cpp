// The config.json files of models on the Hugging Face Hub, each with sizes made small and random weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "megatron/models/hugging_face/weight_map.h"
#include "megatron/training/hugging_face/hugging_face_model.h"
#include "tests/commands/bridge_run.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

using hugging_face::Json;

/// Model names with their configurations, which keep the order of their keys.
Json published_configs() {
  std::ifstream file(source_path("tests/commands/published_configs.json"));
  return Json::parse(file);
}

/// Finite values of any kind: as bf16, as fp16 and as fp32 the exponents of these bits stay small.
std::vector<std::byte> random_bytes(int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0x3f);
  return bytes;
}

ElementType type_of(const Json& config) {
  const std::string name = config.value("dtype", config.value("torch_dtype", "float32"));
  return name == "bfloat16"  ? ElementType::kBFloat16
         : name == "float16" ? ElementType::kFloat16
                             : ElementType::kFloat32;
}

/// Writes config.json and weights for it, under the names and with the shapes of the family.
void write_model(const Json& config, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << config.dump(2);
  HuggingFaceModel model = described_model(config, "config.json");
  if (config.contains("num_nextn_predict_layers"))
    model.arguments["mtp_num_layers"] = config["num_nextn_predict_layers"];
  const hugging_face::WeightMap map = weight_map_of(model.family, model.config());
  const ElementType type = type_of(config);
  std::map<std::string, std::vector<std::byte>> values;
  std::mt19937 random(7);
  for (const auto& [name, shape] : map.tensors())
    values[name] = random_bytes(shape.num_elements() * size_of(type), random);
  for (const auto& [copy, original] : map.copies()) values[copy] = values.at(original);
  std::vector<SafetensorsItem> items;
  for (const auto& [name, shape] : map.tensors())
    items.push_back({name, type, shape, make_owned_source(std::move(values[name]))});
  PosixFileSystem files;
  write_safetensors_folder(files, folder, std::move(items), int64_t{1} << 30, [](int64_t) {});
}

TEST(PublishedConfig, IsImportedAndExportedWithAllItsKeys) {
  const Json configs = published_configs();
  for (const auto& [name, config] : configs.items()) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const std::string model = scratch.file("model"), checkpoint = scratch.file("ckpt"), folder = scratch.file("hf");
    ASSERT_NO_THROW(write_model(config, model));
    const Ended imported = bridge({"import", "--hf-path", model, "--save", checkpoint});
    ASSERT_EQ(imported.status, 0) << imported.err;
    const Ended exported = bridge({"export", "--load", checkpoint, "--hf-path", folder});
    ASSERT_EQ(exported.status, 0) << exported.err;
    expect_same_tensors(folder, model);
    Json expected = config;
    expected.erase("quantization_config");
    EXPECT_EQ(json_of(folder + "/config.json"), nlohmann::json::parse(expected.dump()));
  }
}

/// Without the file that an import keeps, config.json is made from the stored arguments: of the same model, or the
/// export fails with what differs.
TEST(PublishedConfig, IsMadeFromTheArgumentsOfItsModel) {
  const Json configs = published_configs();
  for (const auto& [name, config] : configs.items()) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const std::string model = scratch.file("model"), checkpoint = scratch.file("ckpt"), folder = scratch.file("hf");
    write_model(config, model);
    ASSERT_EQ(bridge({"import", "--hf-path", model, "--save", checkpoint}).status, 0);
    EXPECT_GT(std::filesystem::remove_all(checkpoint + "/iter_0000000/hugging_face"), 0);
    const Ended exported = bridge({"export", "--load", checkpoint, "--hf-path", folder, "--hf-model-type",
                                   config["model_type"].get<std::string>()});
    ASSERT_EQ(exported.status, 0) << exported.err;
    expect_same_tensors(folder, model);
    if (config.contains("rope_theta")) {
      const double theta = config["rope_theta"].get<double>();
      EXPECT_EQ(json_of(folder + "/config.json")["rope_theta"], std::round(theta));
    }
  }
}

TEST(PublishedConfig, KeysWithOtherValuesAreStillRejected) {
  struct Changed {
    const char *model, *key;
    Json value;
    const char* reason;
  };
  const std::vector<Changed> all = {
      {"Qwen2.5-0.5B", "use_mrope", true, "use_mrope is true; supported: false"},
      {"SmolLM2-135M", "rope_interleaved", true, "rope_interleaved is true; supported: false"},
      {"Qwen3-Coder-30B-A3B-Instruct", "shared_expert_intermediate_size", 8, "supported: 0"},
      {"Phi-4-mini-instruct", "lm_head_bias", true, "lm_head_bias is true; supported: false"},
      {"starcoder2-3b", "norm_type", "rms_norm", "norm_type is \"rms_norm\"; supported: \"layer_norm\""},
      {"Minitron-4B-Base", "kv_channels", 8, "kv_channels is 8 and head_dim 16"},
      {"Minitron-4B-Base", "rope_percent", 0.25, "rope_percent is 0.25 and partial_rotary_factor 0.5"},
  };
  for (const Changed& changed : all) {
    SCOPED_TRACE(changed.key);
    const ScratchDirectory scratch;
    Json config = published_configs()[changed.model];
    config[changed.key] = changed.value;
    std::filesystem::create_directories(scratch.file("model"));
    std::ofstream(scratch.file("model") + "/config.json") << config.dump(2);
    const Ended ended = bridge({"import", "--hf-path", scratch.file("model"), "--save", scratch.file("ckpt")});
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.err, ::testing::HasSubstr(changed.reason));
  }
}

/// The frequencies are those of the base in config.json: the rounding of four operations on doubles is allowed.
TEST(PublishedConfig, FractionOfARotaryBaseIsInTheDivisorsOfItsFrequencies) {
  const Json config = published_configs()["starcoder2-3b"];
  const Json arguments = described_model(config, "config.json").arguments;
  const double theta = config["rope_theta"].get<double>(), channels = arguments["kv_channels"].get<double>();
  const auto divisors = arguments["longrope_long_factor"].get<std::vector<double>>();
  EXPECT_EQ(arguments["longrope_short_factor"], arguments["longrope_long_factor"]);
  ASSERT_EQ(static_cast<double>(divisors.size()), channels / 2);
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double exponent = -2 * static_cast<double>(i) / channels;
    const double ours = std::pow(arguments["rotary_base"].get<double>(), exponent) / divisors[i];
    EXPECT_NEAR(ours / std::pow(theta, exponent), 1, 4 * std::numeric_limits<double>::epsilon());
  }
  EXPECT_NE(divisors.back(), 1);
}

/// transformers takes 4096 where the key is missing, and no window where it is null.
TEST(PublishedConfig, MistralHasAWindowUnlessItIsNull) {
  Json config = published_configs()["Mistral-Nemo-Base-2407"];
  EXPECT_FALSE(described_model(config, "config.json").arguments.contains("window_size"));
  config.erase("sliding_window");
  EXPECT_EQ(described_model(config, "config.json").arguments["window_size"], Json({4095, 0}));
}

}  // namespace
}  // namespace megatron::testing
