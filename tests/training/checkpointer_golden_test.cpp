// Checkpoints that Megatron-LM wrote, in this trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/dist_checkpointing/safetensors.h"
#include "megatron/training/checkpointer.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/test_device.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

const std::string kGolden = testing::golden_checkpoints();

/// Layer `layer` of a stored tensor, or all of it for -1.
std::vector<double> expected_values(const SafetensorsFile& file, const std::string& key, int64_t layer) {
  const std::vector<std::byte> bytes = file.read(key);
  const SafetensorsFile::Tensor& tensor = file.tensor(key);
  const int64_t all = tensor.shape.num_elements(), size = layer < 0 ? all : all / tensor.shape[0];
  const int64_t begin = std::max<int64_t>(layer, 0) * size;
  std::vector<double> values;
  dispatch_floating(info(tensor.type).dtype.value(), [&]<class T>() {
    const T* data = reinterpret_cast<const T*>(bytes.data());
    for (int64_t i = begin; i < begin + size; ++i) values.push_back(static_cast<double>(data[i]));
  });
  return values;
}

/// "decoder.layers.1.input_layernorm.weight" as Megatron stores it, with its layer; -1 outside of layers.
std::pair<std::string, int64_t> stored_key(std::string name) {
  for (const auto& [ours, stored] : {std::pair{"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
                                     {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"}})
    if (const size_t at = name.find(ours); at != std::string::npos)
      name.replace(at, std::string_view(ours).size(), stored);
  if (!name.starts_with("decoder.layers.")) return {name, -1};
  const int64_t layer = name[15] - '0';
  return {name.erase(15, 2), layer};
}

struct Golden {
  const char* folder;
  const char* master;  // state with the fp32 weights; null: no optimizer state is stored, or it is not loaded
};
void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.folder; }

class GoldenCheckpoint : public ::testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenCheckpoint,
                         ::testing::Values(Golden{"lm019/llama_1", "param"}, Golden{"lm019/llama_tp2pp2", "param"},
                                           Golden{"lm019/llama_plainopt", "fp32_param"},
                                           Golden{"lm019/llama_tp2", nullptr}, Golden{"lm019/gpt2_1", "param"},
                                           Golden{"lm019/gpt2_pp2", nullptr}, Golden{"core016/llama_1", nullptr}),
                         [](const auto& info) {
                           std::string name = info.param.folder;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

TEST_P(GoldenCheckpoint, GoesOnHere) {
  const Golden golden = GetParam();
  PosixFileSystem files;
  const PretrainConfig config = testing::small_config(testing::golden_words(golden.folder));
  Trainer trainer(config, {});
  Checkpointer checkpointer(files, config, {});
  ASSERT_TRUE(checkpointer.load(trainer));

  const std::string description = fmt::format("checkpoint/{}/case.json", golden.folder);
  const std::string path = kGolden + "expected/" + testing::golden_json(description, "expected").get<std::string>();
  const SafetensorsFile expected(files.open_for_reading(path), path);
  for (const OptimizerState& state : trainer.optimizer().states()) {
    SCOPED_TRACE(state.parameter->name());
    const auto [key, layer] = stored_key(state.parameter->name());
    const auto values = [&](const std::string& prefix) { return expected_values(expected, prefix + key, layer); };
    EXPECT_EQ(testing::values_of(std::as_const(*state.parameter).value()), values(""));
    if (!golden.master) continue;
    EXPECT_EQ(testing::values_of(state.main), values(fmt::format("optimizer.state.{}.", golden.master)));
    EXPECT_EQ(testing::values_of(state.exp_avg), values("optimizer.state.exp_avg."));
    EXPECT_EQ(testing::values_of(state.exp_avg_sq), values("optimizer.state.exp_avg_sq."));
  }
  const int64_t iteration = testing::golden_iteration(golden.folder);
  const int64_t num_samples = iteration * config.training.global_batch_size.value();
  EXPECT_EQ(trainer.progress().iteration, iteration);
  EXPECT_EQ(trainer.progress().consumed_train_samples, num_samples);
  EXPECT_EQ(trainer.optimizer().num_steps(), golden.master ? testing::kGoldenAdamSteps : 0);
  EXPECT_EQ(trainer.scheduler().num_steps(), golden.master ? num_samples : 0);
  for (double loss : testing::train(trainer, iteration, iteration + 2)) EXPECT_TRUE(std::isfinite(loss));
}

TEST(GoldenCheckpoint, OfLayoutBoundOptimizerStateIsRefusedWithTheRemedy) {
  PosixFileSystem files;
  PretrainConfig config = testing::small_config(testing::golden_words("lm019/llama_dp2"));
  Trainer trainer(config, {});
  try {
    Checkpointer(files, config, {}).load(trainer);
    FAIL() << "the buckets of a distributed optimizer were read";
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("--no-load-optim"), std::string::npos) << error.what();
  }
  config.checkpoint.no_load_optim = true;
  EXPECT_TRUE(Checkpointer(files, config, {}).load(trainer));
}

}  // namespace
}  // namespace megatron
