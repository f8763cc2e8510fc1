// Models of Hugging Face's, tiny and random, with the logits of transformers 5.23 (tests/golden/hf).
#include "tests/commands/bridge_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/exit_code.h"
#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/hugging_face/export_model.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"
#include "tests/testing/words.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

TEST(Bridge, ComputesTheLogitsAndTheLossOfTransformers) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const SafetensorsFile expected = open_safetensors(golden_model(name) + "/expected.safetensors");
    const std::vector<float> theirs = floats_of(expected, "logits");
    const std::vector<float> ours = logits_of({"--load-hf", golden_model(name)}, name, scratch);
    ASSERT_EQ(ours.size(), theirs.size());
    double most = 0;
    for (size_t i = 0; i < ours.size(); ++i) most = std::max<double>(most, std::abs(ours[i] - theirs[i]));
    EXPECT_LE(most, 1e-4);
    const Ended ended =
        eval({"--load-hf", golden_model(name), "--token-ids", golden_model(name) + "/expected.safetensors"});
    const std::string line = "loss ";
    const double loss = std::stod(ended.out.substr(ended.out.find(line) + line.size()));
    EXPECT_NEAR(loss, std::stod(expected.metadata().at("loss")), 2e-6);
  }
}

TEST(Bridge, ImportedCheckpointsComputeTheSameBits) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const Ended imported = bridge({"import", "--hf-path", golden_model(name), "--save", scratch.file("ckpt")});
    ASSERT_EQ(imported.status, 0) << imported.err;
    EXPECT_EQ(logits_of({"--load", scratch.file("ckpt")}, name, scratch),
              logits_of({"--load-hf", golden_model(name)}, name, scratch));
  }
}

TEST(Bridge, ExportsTheBitsAndTheKeysThatWereImported) {
  for (const std::string& name : golden_models()) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const std::string checkpoint = scratch.file("ckpt"), folder = scratch.file("hf");
    ASSERT_EQ(bridge({"import", "--hf-path", golden_model(name), "--save", checkpoint}).status, 0);
    const Ended exported = bridge({"export", "--load", checkpoint, "--hf-path", folder});
    ASSERT_EQ(exported.status, 0) << exported.err;
    expect_same_model(folder, golden_model(name));
    EXPECT_EQ(json_of(folder + "/generation_config.json"), json_of(golden_model(name) + "/generation_config.json"));
    EXPECT_EQ(bridge({"roundtrip", "--hf-path", golden_model(name)}).status, 0);
  }
}

TEST(Bridge, CutsAnExportIntoShardsWithAnIndex) {
  const ScratchDirectory scratch;
  const std::string checkpoint = scratch.file("ckpt"), folder = scratch.file("hf");
  ASSERT_EQ(bridge({"import", "--hf-path", golden_model("llama"), "--save", checkpoint}).status, 0);
  PosixFileSystem files;
  SilentProgress progress;
  CheckpointConfig config;
  config.load = checkpoint;
  export_hugging_face(files, {.checkpoint = config, .directory = folder, .config_from = {}, .max_shard_bytes = 20'000},
                      progress);
  expect_same_model(folder, golden_model("llama"));
  EXPECT_TRUE(files.exists(folder + "/model-00001-of-00004.safetensors"));
  EXPECT_EQ(json_of(folder + "/" + kSafetensorsIndex)["metadata"],
            json_of(golden_model("llama") + "/" + kSafetensorsIndex)["metadata"]);
}

// The models beside them with _dequantized are what torch and transformers make of the same weights.
TEST(Bridge, DequantisesWeightsBitForBit) {
  for (const std::string name : {"deepseek_v3_fp8", "gpt_oss_mxfp4"}) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const Ended imported = bridge({"import", "--hf-path", golden_model(name), "--save", scratch.file("ckpt")});
    ASSERT_EQ(imported.status, 0) << imported.err;
    const Ended exported = bridge({"export", "--load", scratch.file("ckpt"), "--hf-path", scratch.file("hf")});
    ASSERT_EQ(exported.status, 0) << exported.err;
    expect_same_model(scratch.file("hf"), golden_model(name + "_dequantized"));
    EXPECT_EQ(bridge({"roundtrip", "--hf-path", golden_model(name)}).status, 0);
  }
}

/// A step with a learning rate of 0 on tensor and pipeline ranks, then a save.
Words training(const ScratchDirectory& scratch, const std::string& save, const Words& extra) {
  const Words words = {"--device",
                       "cpu",
                       "--seq-length",
                       "16",
                       "--micro-batch-size",
                       "1",
                       "--global-batch-size",
                       "2",
                       "--train-iters",
                       "1",
                       "--lr",
                       "0",
                       "--mock-data",
                       "--tokenizer-type",
                       "NullTokenizer",
                       "--vocab-size",
                       "97",
                       "--num-threads",
                       "1",
                       "--eval-iters",
                       "0",
                       "--nproc-per-node",
                       "4",
                       "--tensor-model-parallel-size",
                       "2",
                       "--sequence-parallel",
                       "--pipeline-model-parallel-size",
                       "2",
                       "--save",
                       scratch.file(save),
                       "--save-interval",
                       "1"};
  return joined(words, extra);
}

TEST(Bridge, TrainingStartsFromAFolderOrAnImportOnAnyLayoutAndIsExported) {
  const Words still = {"--moe-router-bias-update-rate", "0"};  // moves without a learning rate too
  const std::pair<std::string, Words> models[] = {{"llama", {}},
                                                  {"gpt2", {}},
                                                  {"qwen2_sliding_tied", {}},
                                                  {"gemma2", {}},
                                                  {"gemma3", {}},
                                                  {"olmo2", {}},
                                                  {"granite", {}},
                                                  {"deepseek_v2", {}},
                                                  {"deepseek_v3_mtp", still},
                                                  {"gpt_oss", {"--expert-tensor-parallel-size", "1"}}};
  for (const auto& [name, extra] : models) {
    SCOPED_TRACE(name);
    const ScratchDirectory scratch;
    const std::string model = golden_model(name);
    const Ended direct = pretrain(joined(training(scratch, "direct", extra), {"--load-hf", model}));
    ASSERT_EQ(direct.status, 0) << direct.err << direct.out;
    ASSERT_EQ(bridge({"import", "--hf-path", model, "--save", scratch.file("ckpt")}).status, 0);
    const Ended imported = pretrain(joined(training(scratch, "imported", extra),
                                           {"--load", scratch.file("ckpt"), "--use-checkpoint-args", "--finetune"}));
    ASSERT_EQ(imported.status, 0) << imported.err << imported.out;
    for (const char* save : {"direct", "imported"}) {
      const std::string folder = scratch.file(std::string(save) + "_hf");
      const Ended exported =
          bridge({"export", "--load", scratch.file(save), "--hf-path", folder, "--hf-config", model});
      ASSERT_EQ(exported.status, 0) << exported.err;
      expect_same_model(folder, model);
    }
  }
}

/// A copy of a golden model.
std::string copy_of(const std::string& name, const ScratchDirectory& scratch) {
  const std::string folder = scratch.file(name);
  std::filesystem::copy(golden_model(name), folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_all);
  return folder;
}

/// A copy whose config.json has these values.
std::string with_config(const std::string& name, const nlohmann::json& changes, const ScratchDirectory& scratch) {
  const std::string folder = copy_of(name, scratch), path = folder + "/config.json";
  nlohmann::json config = json_of(path);
  config.update(changes);
  std::ofstream(path) << config.dump();
  return folder;
}

void expect_refusal(const std::string& folder, ExitCode code, const Words& texts) {
  const Ended ended = bridge({"roundtrip", "--hf-path", folder});
  EXPECT_EQ(ended.status, static_cast<int>(code)) << ended.err;
  for (const std::string& text : texts) EXPECT_THAT(ended.err, HasSubstr(text));
}

TEST(Bridge, RejectsEveryKeyThatChangesTheModelAtOnce) {
  const ScratchDirectory scratch;
  expect_refusal(with_config("llama",
                             {{"hidden_act", "gelu"},
                              {"attention_bias", true},
                              {"quantization_config", {{"bits", 4}}},
                              {"rope_parameters", {{"rope_type", "llama4"}, {"strange", 1}}}},
                             scratch),
                 ExitCode::kUsage,
                 {"hidden_act is \"gelu\"; supported: \"silu\"", "attention_bias is true and mlp_bias is false",
                  "quantization_config is {\"bits\":4}", "rope_type is \"llama4\"; supported: default, linear",
                  "strange is 1, an unknown setting"});
}

TEST(Bridge, NamesTheSupportedFamilies) {
  const ScratchDirectory scratch;
  expect_refusal(with_config("llama", {{"model_type", "t5"}}, scratch), ExitCode::kUsage,
                 {"model_type is \"t5\". Supported are deepseek_v2, deepseek_v3, gemma2, gemma3_text, gpt2, gpt_oss, "
                  "granite, llama, mistral, mixtral, nemotron, olmo2, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, "
                  "starcoder2"});
}

TEST(Bridge, ListsTensorsThatAreMissingUnknownOrOfAnotherShape) {
  const ScratchDirectory scratch;
  expect_refusal(
      with_config("qwen3", {{"model_type", "llama"}, {"num_hidden_layers", 3}, {"intermediate_size", 45}}, scratch),
      ExitCode::kUsage, {"layer_types is", "use_sliding_window is"});
  const ScratchDirectory other;
  expect_refusal(with_config("mistral", {{"num_hidden_layers", 3}, {"intermediate_size", 45}}, other),
                 ExitCode::kCheckpoint,
                 {"missing tensors: model.layers.2.input_layernorm.weight",
                  "model.layers.0.mlp.down_proj.weight is [28, 44] instead of [28, 45]"});
  const ScratchDirectory third;
  expect_refusal(with_config("llama_tied_bias", {{"attention_bias", false}, {"mlp_bias", false}}, third),
                 ExitCode::kCheckpoint, {"unknown tensors: model.layers.0.mlp.down_proj.bias", "Fetch the folder"});
}

TEST(Bridge, NamesFilesThatAreMissing) {
  const ScratchDirectory scratch;
  const std::string folder = copy_of("llama", scratch);
  std::filesystem::remove(folder + "/model-00003-of-00004.safetensors");
  expect_refusal(folder, ExitCode::kCheckpoint,
                 {"model-00003-of-00004.safetensors is missing", "model.safetensors.index.json says"});
  std::filesystem::remove(folder + "/model.safetensors.index.json");
  expect_refusal(folder, ExitCode::kCheckpoint, {"has neither model.safetensors nor model.safetensors.index.json"});
  std::filesystem::remove(folder + "/config.json");
  expect_refusal(folder, ExitCode::kCheckpoint, {"config.json is missing"});
}

TEST(Bridge, RefusesToOverwriteAndToExportAnotherModel) {
  const ScratchDirectory scratch;
  const std::string checkpoint = scratch.file("ckpt");
  ASSERT_EQ(bridge({"import", "--hf-path", golden_model("llama"), "--save", checkpoint}).status, 0);
  const Ended again = bridge({"import", "--hf-path", golden_model("llama"), "--save", checkpoint});
  EXPECT_EQ(again.status, static_cast<int>(ExitCode::kCheckpoint));
  EXPECT_THAT(again.err, HasSubstr("holds checkpoints already"));
  const Ended onto = bridge({"export", "--load", checkpoint, "--hf-path", scratch.path()});
  EXPECT_THAT(onto.err, HasSubstr("holds files already"));
  const Ended other =
      bridge({"export", "--load", checkpoint, "--hf-path", scratch.file("hf"), "--hf-config", golden_model("mistral")});
  EXPECT_EQ(other.status, static_cast<int>(ExitCode::kCheckpoint));
  EXPECT_THAT(other.err, HasSubstr("window_size is"));
}

/// A tokenizer of the printable ASCII characters and an end, one entry less than the model has.
std::string character_tokenizer() {
  nlohmann::json vocab;
  for (char c = ' '; c <= '~'; ++c) vocab[std::string(1, c)] = c - ' ';
  vocab["<eos>"] = 95;
  const nlohmann::json end = {{"id", 95},        {"content", "<eos>"},  {"single_word", false}, {"lstrip", false},
                              {"rstrip", false}, {"normalized", false}, {"special", true}};
  return nlohmann::json{{"version", "1.0"},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"added_tokens", {end}},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", nullptr},
                        {"post_processor", nullptr},
                        {"decoder", nullptr},
                        {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}
      .dump();
}

/// The commands of the page, each in one line.
Words commands_of_page() {
  std::ifstream file(source_path("docs/hugging_face.md"));
  Words commands;
  bool continues = false;
  for (std::string line; std::getline(file, line);) {
    if (!continues && !line.starts_with("build/bin/megatron ")) continue;
    const bool goes_on = line.ends_with("\\");
    if (goes_on) line.pop_back();
    if (continues)
      commands.back() += line;
    else
      commands.push_back(line);
    continues = goes_on;
  }
  return commands;
}

/// The same commands on a tiny model and a short text.
TEST(Bridge, CommandsOfItsPageRun) {
  const ScratchDirectory scratch;
  std::filesystem::rename(copy_of("llama", scratch), scratch.file("Llama-3.2-1B"));
  std::filesystem::rename(copy_of("mixtral", scratch), scratch.file("Mixtral-8x7B"));
  for (const std::string name : {"Llama-3.2-1B", "Mixtral-8x7B"}) {
    std::ofstream(scratch.file(name + "/tokenizer.json")) << character_tokenizer();
    std::ofstream(scratch.file(name + "/tokenizer_config.json")) << nlohmann::json{{"eos_token", "<eos>"}}.dump();
  }
  std::string text;
  for (int i = 0; i < 40; ++i) text += "Once upon a time there was a model. ";
  std::ofstream(scratch.file("book.txt")) << text;
  std::ofstream(scratch.file("book.jsonl")) << nlohmann::json{{"text", text}}.dump() << "\n";
  std::filesystem::copy(golden_model("llama") + "/expected.safetensors", scratch.file("ids.safetensors"));
  std::ofstream(scratch.file("prompts.jsonl")) << nlohmann::json{{"prompt", "Once upon a time"}}.dump() << "\n";
  const Words commands = commands_of_page();
  ASSERT_EQ(commands.size(), 12);
  for (std::string command : commands) {
    if (command.find(" pretrain_gpt ") != std::string::npos)  // the tiny model's context is 64 tokens
      command += " --seq-length 32 --global-batch-size 2 --train-iters 2 --save-interval 2 --eval-iters 0 --device cpu";
    command.replace(0, std::string("build/bin/megatron").size(), MEGATRON_PROGRAM);
    Program process({"/bin/sh", "-c", "cd " + scratch.path() + " && " + command});
    EXPECT_EQ(process.wait_status(), 0) << command << "\n" << process.output();
  }
  EXPECT_EQ(json_of(scratch.file("exported/config.json")), json_of(scratch.file("Llama-3.2-1B/config.json")));
}

TEST(Bridge, ListsFlagsThatAreMissing) {
  EXPECT_THAT(bridge({"import"}).err, HasSubstr("--hf-path is missing"));
  EXPECT_THAT(bridge({"import", "--hf-path", "x"}).err, HasSubstr("--save is missing"));
  EXPECT_THAT(bridge({"export", "--hf-path", "x", "--save", "y"}).err, HasSubstr("--save goes with import alone"));
  EXPECT_THAT(bridge({"copy"}).err, HasSubstr("there is no \"bridge copy\""));
  EXPECT_THAT(eval({"--load", "x"}).err, HasSubstr("give one of --token-ids, --text and --data-path"));
}

}  // namespace
}  // namespace megatron::testing
