// config.json of an exported model, from the checkpoint of an import, of a training run, and from arguments alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "commands/exit_code.h"
#include "megatron/models/hugging_face/config_reader.h"
#include "tests/commands/bridge_run.h"

namespace megatron::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// An import whose checkpoint has lost what it kept of the folder, as that of a training run.
std::string import_without_config(const std::string& name, const ScratchDirectory& scratch) {
  const std::string checkpoint = scratch.file("ckpt");
  const Ended imported = bridge({"import", "--hf-path", golden_model(name), "--save", checkpoint});
  EXPECT_EQ(imported.status, 0) << imported.err;
  EXPECT_GT(std::filesystem::remove_all(checkpoint + "/iter_0000000/hugging_face"), 0);
  return checkpoint;
}

/// Keys that the model does not depend on, and keys whose meaning others repeat.
const std::set<std::string> kOtherKeys = {"bos_token_id",
                                          "eos_token_id",
                                          "pad_token_id",
                                          "transformers_version",
                                          "use_cache",
                                          "output_router_logits",
                                          "pretraining_tp",
                                          "reorder_and_upcast_attn",
                                          "max_window_layers",        // layer_types says it
                                          "_sliding_window_pattern",  // layer_types says it
                                          "sliding_window_pattern",
                                          "num_local_experts",  // num_experts of qwen3_moe
                                          "original_max_position_embeddings",
                                          "num_nextn_predict_layers"};

/// A value that stands for none: of a window that no layer has, of a setting that is off.
bool is_none(const nlohmann::json& value) { return value.is_null() || value == 0 || value == false; }

void expect_keys(const nlohmann::json& ours, const nlohmann::json& theirs) {
  for (const auto& [key, value] : theirs.items()) {
    if (key.starts_with("summary_")) continue;  // heads of other tasks
    const bool is_latent = theirs.contains("kv_lora_rank") && (key == "head_dim" || key == "qk_head_dim");
    if (is_latent || kOtherKeys.contains(key) || (is_none(value) && !ours.contains(key))) continue;
    ASSERT_TRUE(ours.contains(key)) << key;
    if (is_none(value) && is_none(ours[key])) continue;
    if (key != "rope_parameters") {
      EXPECT_EQ(ours[key], value) << key;
      continue;
    }
    for (const auto& [setting, number] : value.items())
      if (setting != "partial_rotary_factor" || number != 1) {
        EXPECT_EQ(ours[key].value(setting, nlohmann::json()), number) << setting;
      }
  }
}

TEST(BridgeConfig, IsMadeFromTheArgumentsOfTheCheckpointForEveryFamily) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const nlohmann::json theirs = json_of(golden_model(name) + "/config.json");
    const std::string checkpoint = import_without_config(name, scratch), folder = scratch.file("hf");
    const Ended exported = bridge({"export", "--load", checkpoint, "--hf-path", folder, "--hf-model-type",
                                   theirs["model_type"].get<std::string>()});
    ASSERT_EQ(exported.status, 0) << exported.err;
    expect_keys(json_of(folder + "/config.json"), theirs);
    EXPECT_TRUE(json_of(folder + "/generation_config.json").is_object());
    EXPECT_EQ(logits_of({"--load-hf", folder}, name, scratch),
              logits_of({"--load-hf", golden_model(name)}, name, scratch));
  }
}

TEST(BridgeConfig, RejectsNumbersThatNoIntegerHolds) {
  using hugging_face::Json;
  const Json config =
      Json::parse(R"({"rope_theta": 1e118, "num_hidden_layers": 18446744073709551615, "hidden_size": 1.5})");
  hugging_face::ConfigReader reader(config);
  reader.integer_number("rope_theta", 10000);
  EXPECT_EQ(reader.integer("num_hidden_layers", 2), 2);
  EXPECT_EQ(reader.integer("hidden_size", 8), 8);
  EXPECT_THAT(reader.mistakes(),
              ElementsAre("rope_theta is 1e+118; supported: whole numbers up to 2^53",
                          "num_hidden_layers is 18446744073709551615, which is no whole number of 64 bits",
                          "hidden_size is 1.5, which is no whole number of 64 bits"));
}

TEST(BridgeConfig, TakesTheOnlyFamilyThatHasTheArguments) {
  for (const std::string name : {"gpt2", "gemma2", "gpt_oss", "qwen2_moe", "deepseek_v2", "deepseek_v3", "olmo2"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const std::string checkpoint = import_without_config(name, scratch), folder = scratch.file("hf");
    const Ended exported = bridge({"export", "--load", checkpoint, "--hf-path", folder});
    ASSERT_EQ(exported.status, 0) << exported.err;
    EXPECT_EQ(json_of(folder + "/config.json")["model_type"], name);
  }
}

TEST(BridgeConfig, RejectsFlagsOfExportsElsewhere) {
  const Ended ended = bridge({"import", "--hf-path", golden_model("llama"), "--save", "nowhere", "--hf-model-type",
                              "llama", "--hf-config", "nowhere", "--ckpt-step", "1"});
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kUsage));
  for (const char* flag : {"--hf-model-type", "--hf-config", "--ckpt-step"})
    EXPECT_THAT(ended.err, HasSubstr(std::string(flag) + " goes with export alone"));
}

TEST(BridgeConfig, ListsTheFamiliesIfSeveralFit) {
  const ScratchDirectory scratch;
  const std::string checkpoint = import_without_config("llama", scratch);
  const Ended ended = bridge({"export", "--load", checkpoint, "--hf-path", scratch.file("hf")});
  EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kUsage)) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("llama, mistral, phi3"));
  EXPECT_THAT(ended.err, HasSubstr("--hf-model-type"));
}

/// A step of a tiny model, saved to "trained".
Ended train(const ScratchDirectory& scratch, const Words& extra) {
  const Words words = words_of(
      "--device cpu --num-threads 1 --seq-length 16 --micro-batch-size 1 --global-batch-size 1 --lr 0 --mock-data "
      "--tokenizer-type NullTokenizer --vocab-size 97 --eval-iters 0 --save-interval 1 --save " +
      scratch.file("trained"));
  return pretrain(joined(words, extra));
}

const Words kNewModel = words_of(
    "--train-iters 1 --num-layers 2 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 4 --num-query-groups 2 "
    "--max-position-embeddings 64 --position-embedding-type rope --normalization RMSNorm --swiglu "
    "--disable-bias-linear --untie-embeddings-and-output-weights");

TEST(BridgeConfig, DescribesAModelThatWasTrainedFromScratch) {
  const ScratchDirectory scratch;
  const Ended trained = train(scratch, joined(kNewModel, {"--rotary-base", "500000", "--qk-layernorm"}));
  ASSERT_EQ(trained.status, 0) << trained.err << trained.out;
  const std::string folder = scratch.file("hf");
  const Ended exported = bridge({"export", "--load", scratch.file("trained"), "--hf-path", folder});
  ASSERT_EQ(exported.status, 0) << exported.err;
  const nlohmann::json config = json_of(folder + "/config.json");
  EXPECT_EQ(config["model_type"], "qwen3");
  EXPECT_EQ(config["vocab_size"], 97);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["rope_theta"], 500000);
  EXPECT_EQ(logits_of({"--load-hf", folder}, "llama", scratch),
            logits_of({"--load", scratch.file("trained")}, "llama", scratch));
}

TEST(BridgeConfig, ListsTheArgumentsThatNoFamilyCanExpress) {
  const ScratchDirectory scratch;
  const Ended trained = train(
      scratch, joined(kNewModel, {"--rotary-interleaved", "--no-rope-freq", "2", "--softmax-type", "off-by-one"}));
  ASSERT_EQ(trained.status, 0) << trained.err << trained.out;
  const Words words = {"export", "--load", scratch.file("trained"), "--hf-path", scratch.file("hf")};
  for (const Words& choice : {Words{}, Words{"--hf-model-type", "llama"}}) {
    const Ended ended = bridge(joined(words, choice));
    EXPECT_EQ(ended.status, static_cast<int>(ExitCode::kUsage));
    EXPECT_THAT(ended.err, HasSubstr("rotary_interleaved is true there and false here"));
    EXPECT_THAT(ended.err, HasSubstr("no_rope_freq is [0,1] there and null here"));
    EXPECT_THAT(ended.err, HasSubstr("softmax_type is \"off-by-one\" there"));
    EXPECT_THAT(ended.err, Not(HasSubstr("add_bias_linear")));
  }
  EXPECT_FALSE(std::filesystem::exists(scratch.file("hf")));
}

TEST(BridgeConfig, IsKeptByTheCheckpointsOfARunThatBeganWithIt) {
  const ScratchDirectory scratch;
  const std::string model = golden_model("qwen2_sliding_tied"), save = scratch.file("trained");
  const Ended begun =
      train(scratch, {"--train-iters", "2", "--exit-interval", "1", "--load-hf", model, "--load", save});
  ASSERT_EQ(begun.status, 0) << begun.err << begun.out;
  const Ended resumed = train(scratch, {"--train-iters", "2", "--load", save, "--use-checkpoint-args"});
  ASSERT_EQ(resumed.status, 0) << resumed.err << resumed.out;
  for (const std::string step : {"1", "2"}) {
    const std::string folder = scratch.file("hf" + step);
    const Ended exported = bridge({"export", "--load", save, "--ckpt-step", step, "--hf-path", folder});
    ASSERT_EQ(exported.status, 0) << exported.err;
    expect_same_model(folder, model);
    EXPECT_EQ(json_of(folder + "/generation_config.json"), json_of(model + "/generation_config.json"));
  }
}

}  // namespace
}  // namespace megatron::testing
