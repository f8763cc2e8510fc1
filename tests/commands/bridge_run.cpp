#include "tests/commands/bridge_run.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "commands/bridge.h"
#include "commands/eval.h"
#include "commands/pretrain.h"
#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

std::vector<std::byte> bytes_of(const SafetensorsFolder& folder, const std::string& name) {
  const SafetensorsFile::Tensor& tensor = folder.tensor(name);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
  folder.read_box(name, Box::whole(tensor.shape), bytes.data(), tensor.shape.contiguous_strides());
  return bytes;
}

}  // namespace

std::string golden_model(const std::string& name) { return golden_path("hf/" + name); }

Words golden_models() {
  return words_of(
      "gpt2 llama llama_tied_bias llama_rope_llama3 llama_rope_linear llama_rope_yarn mistral qwen2 qwen2_sliding_tied "
      "qwen3 phi3 nemotron starcoder2 mixtral qwen2_moe qwen3_moe deepseek_v2 deepseek_v3 deepseek_v3_yarn gpt_oss "
      "llama_rope_dynamic phi3_longrope gemma2 gemma2_untied gemma3 gemma3_rope_linear olmo2 olmo2_tied granite "
      "granite_tied");
}

Ended bridge(const Words& words) {
  std::ostringstream out, err;
  const int status = bridge_command(words, out, err);
  return {status, out.str(), err.str()};
}

Ended eval(const Words& words) {
  std::ostringstream out, err;
  const int status = eval_command(joined(words, {"--num-threads", "1", "--device", "cpu"}), out, err);
  return {status, out.str(), err.str()};
}

Ended pretrain(const Words& words) {
  std::ostringstream out, err;
  const int status = pretrain_command(gpt_family(), words, out, err);
  return {status, out.str(), err.str()};
}

SafetensorsFile open_safetensors(const std::string& path) { return {PosixFileSystem().open_for_reading(path), path}; }

std::vector<float> floats_of(const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::byte> bytes = file.read(name);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<float> logits_of(const Words& model, const std::string& name, const ScratchDirectory& scratch) {
  const std::string path = scratch.file("logits.safetensors");
  const Ended ended =
      eval(joined(model, {"--token-ids", golden_model(name) + "/expected.safetensors", "--logits", path}));
  EXPECT_EQ(ended.status, 0) << name << ": " << ended.err;
  if (ended.status != 0) return {};
  return floats_of(open_safetensors(path), "logits");
}

nlohmann::json json_of(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

void expect_same_tensors(const std::string& folder, const std::string& expected) {
  const PosixFileSystem files;
  const SafetensorsFolder ours(files, folder), theirs(files, expected);
  EXPECT_EQ(ours.names(), theirs.names());
  for (const std::string& name : theirs.names()) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ(ours.tensor(name).shape, theirs.tensor(name).shape) << name;
    EXPECT_EQ(ours.tensor(name).type, theirs.tensor(name).type) << name;
    EXPECT_EQ(bytes_of(ours, name), bytes_of(theirs, name)) << name;
  }
}

void expect_same_model(const std::string& folder, const std::string& expected) {
  expect_same_tensors(folder, expected);
  EXPECT_EQ(json_of(folder + "/config.json"), json_of(expected + "/config.json"));
}

}  // namespace megatron::testing
