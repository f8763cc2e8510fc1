// States of generators against those that Python, NumPy and PyTorch had after the same seed.
#include "megatron/dist_checkpointing/generator_states.h"

#include <gtest/gtest.h>

#include <cstring>

#include "megatron/base/host_memory_files.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/sha256.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using pickle::Object;

/// Returns the folder of the golden checkpoint.
std::string golden_folder() {
  const std::string folder = "checkpoint/lm019/llama_1/";
  const auto iteration = testing::golden_json(folder + "case.json", "iteration").get<int64_t>();
  return testing::golden_path(fmt::format("{}saved/iter_{:07d}", folder, iteration));
}

std::vector<int64_t> integers_of(const Object& tuple) {
  std::vector<int64_t> values;
  for (const Object* item : tuple.items()) values.push_back(item->as_int());
  return values;
}

/// Writes an object with its tensors as a file of its own.
TorchFile written(TorchObject object, Object& root) {
  object.root = &root;
  HostMemoryFiles files;
  const auto file = files.open_for_writing("state", WriteMode::kTruncate);
  write_torch_file(*file, object, "archive");
  file->close();
  return {files.open_for_reading("state"), "state"};
}

class GeneratorStates : public ::testing::Test {
 protected:
  PosixFileSystem files_;
  CheckpointReader reader_{files_, golden_folder(), Verify::kChecksums};
  TorchFile stored_ = reader_.read_object(rng_state_key(0, 1, 0, 1));
  const Object& golden_ = *stored_.root().items()[0]->items()[0];
  const uint32_t seed_ = seed_of(stored_.read(torch_tensor(golden_.at(rng_state::kCuda)).value()));

 private:
  /// A CUDA generator's state begins with its seed.
  static uint32_t seed_of(const std::vector<std::byte>& state) {
    uint64_t seed = 0;
    std::memcpy(&seed, state.data(), sizeof(seed));
    return static_cast<uint32_t>(seed);
  }
};

TEST_F(GeneratorStates, OfPythonIsThatOfASeededRun) {
  pickle::Graph graph;
  const Object& expected = golden_.at(rng_state::kPython);
  const Object& actual = python_generator_state(graph, seed_);
  ASSERT_EQ(actual.items().size(), expected.items().size());
  EXPECT_EQ(actual.items()[0]->as_int(), expected.items()[0]->as_int());
  EXPECT_EQ(integers_of(*actual.items()[1]), integers_of(*expected.items()[1]));
  EXPECT_TRUE(actual.items()[2]->is_none() && expected.items()[2]->is_none());
}

TEST_F(GeneratorStates, OfNumpyIsThatOfASeededRun) {
  pickle::Graph graph;
  const Object& expected = golden_.at(rng_state::kNumpy);
  const Object& actual = numpy_generator_state(graph, seed_);
  ASSERT_EQ(actual.items().size(), expected.items().size());
  EXPECT_EQ(actual.items()[0]->as_string(), expected.items()[0]->as_string());
  const std::string bytes = expected.items()[1]->instance().state->items()[4]->as_bytes();
  std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
  std::memcpy(words.data(), bytes.data(), bytes.size());
  EXPECT_EQ(integers_of(*actual.items()[1]), std::vector<int64_t>(words.begin(), words.end()));
  for (const size_t i : {2, 3}) EXPECT_EQ(actual.items()[i]->as_int(), expected.items()[i]->as_int());
  EXPECT_EQ(actual.items()[4]->as_float(), expected.items()[4]->as_float());
}

TEST_F(GeneratorStates, OfTorchIsThatOfManualSeed) {
  TorchObject object;
  Object& root = torch_cpu_generator_state(object, 11);
  const TorchFile file = written(std::move(object), root);
  const TorchTensor own = torch_tensor(file.root()).value(),
                    golden = torch_tensor(golden_.at(rng_state::kTorch)).value();
  EXPECT_EQ(own.type, golden.type);
  EXPECT_EQ(own.shape, golden.shape);
  // From torch 2.11.0: torch.manual_seed(11); sha256(torch.get_rng_state().numpy().tobytes()).
  EXPECT_EQ(sha256_hex(file.read(own)), "50eb2aa376beb51d99514aa288bc6e16bfc2e64fb7609e1a042eac0a0a80471d");
}

TEST_F(GeneratorStates, OfCudaIsSeedAndOffset) {
  TorchObject object;
  Object& root = torch_cuda_generator_state(object, seed_, 0);
  const TorchFile file = written(std::move(object), root);
  EXPECT_EQ(file.read(torch_tensor(file.root()).value()),
            stored_.read(torch_tensor(golden_.at(rng_state::kCuda)).value()));
  TorchObject other;
  EXPECT_THROW(torch_cuda_generator_state(other, seed_, 2), Error);
}

}  // namespace
}  // namespace megatron
