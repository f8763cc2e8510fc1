#include "tests/commands/bridge_run.h"

#include <gtest/gtest.h>

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

nlohmann::json json_of(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

void expect_same_model(const std::string& folder, const std::string& expected) {
  const PosixFileSystem files;
  const SafetensorsFolder ours(files, folder), theirs(files, expected);
  EXPECT_EQ(ours.names(), theirs.names());
  for (const std::string& name : theirs.names()) {
    ASSERT_TRUE(ours.contains(name)) << name;
    EXPECT_EQ(ours.tensor(name).shape, theirs.tensor(name).shape) << name;
    EXPECT_EQ(ours.tensor(name).type, theirs.tensor(name).type) << name;
    EXPECT_EQ(bytes_of(ours, name), bytes_of(theirs, name)) << name;
  }
  EXPECT_EQ(json_of(folder + "/config.json"), json_of(expected + "/config.json"));
}

}  // namespace megatron::testing
