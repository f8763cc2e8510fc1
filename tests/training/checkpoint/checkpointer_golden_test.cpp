// Checkpoints that Megatron-LM wrote, in this trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/testing/golden_json.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"
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

/// "decoder.layers.1.input_layernorm.weight" as Megatron stores it, with its layer; -1 outside of layers, and where
/// layers differ, so that each has tensors of its own. Norms of layers with latent attention have their own names.
std::pair<std::string, int64_t> stored_key(std::string name, bool is_latent, bool stacks_layers) {
  for (const auto& [ours, stored] : {std::pair{"input_layernorm.", "self_attention.linear_qkv.layer_norm_"},
                                     {"pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"}})
    if (const size_t at = name.find(ours); at != std::string::npos && !is_latent)
      name.replace(at, std::string_view(ours).size(), stored);
  if (!stacks_layers || !name.starts_with("decoder.layers.")) return {name, -1};
  const int64_t layer = name[15] - '0';
  return {name.erase(15, 2), layer};
}

struct Golden {
  const char* folder;
  const char* master;  // state with the fp32 weights; null: no optimizer state is stored, or it is not loaded
  const char* expected = nullptr;  // file of the whole tensors, if the case names none
};
void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.folder; }

class GoldenCheckpoint : public ::testing::TestWithParam<Golden> {};
INSTANTIATE_TEST_SUITE_P(Checkpoints, GoldenCheckpoint,
                         ::testing::Values(Golden{"lm019/llama_1", "param"}, Golden{"lm019/llama_tp2pp2", "param"},
                                           Golden{"lm019/llama_plainopt", "fp32_param"},
                                           Golden{"lm019/llama_tp2", nullptr}, Golden{"lm019/gpt2_1", "param"},
                                           Golden{"lm019/gpt2_pp2", nullptr}, Golden{"core016/llama_1", nullptr},
                                           Golden{"lm019/mla_1", nullptr}, Golden{"lm019/moe_1", nullptr},
                                           Golden{"lm019/moe_ep2", "param"}, Golden{"lm019/moemix_1", nullptr},
                                           Golden{"lm019/llama_dp2", "param", "lm019_llama_1.safetensors"},
                                           Golden{"lm019/llama_tp2dp2", "param", "lm019_llama_1.safetensors"},
                                           Golden{"lm019/legacy_1", "param", "lm019_llama_1.safetensors"},
                                           Golden{"lm019/legacy_plain_1", "param", "lm019_gpt2_1.safetensors"},
                                           Golden{"lm019/legacy_tp2", nullptr, "lm019_llama_tp2.safetensors"},
                                           Golden{"lm019/legacy_pp2", nullptr, "lm019_gpt2_pp2.safetensors"}),
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
  const std::string path =
      kGolden + "expected/" +
      (golden.expected ? golden.expected : testing::golden_json(description, "expected").get<std::string>());
  const SafetensorsFile expected(files.open_for_reading(path), path);
  const bool is_mixed = std::string_view(golden.folder).find("moemix") != std::string_view::npos;
  for (const OptimizerState& state : trainer.optimizer().states()) {
    SCOPED_TRACE(state.parameter->name());
    const auto [key, layer] = stored_key(state.parameter->name(), config.transformer.mla.has_value(), !is_mixed);
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

TEST(GoldenCheckpoint, WithBucketsInAnotherPrecisionGivesItsMainParameters) {
  PosixFileSystem files;
  std::string words = testing::golden_words("lm019/llama_dp2");
  words.erase(words.find("--bf16 "), std::string_view("--bf16 ").size());
  const PretrainConfig config = testing::small_config(words);
  Trainer trainer(config, {});
  ASSERT_TRUE(Checkpointer(files, config, {}).load(trainer));
  const std::string path = kGolden + "expected/lm019_llama_1.safetensors";
  const SafetensorsFile expected(files.open_for_reading(path), path);
  for (const Parameter* parameter : trainer.model().parameters()) {
    const auto [key, layer] = stored_key(parameter->name(), false, true);
    EXPECT_EQ(testing::values_of(parameter->value()), expected_values(expected, "optimizer.state.param." + key, layer))
        << parameter->name();
  }
}

std::set<std::string> keys_of(const pickle::Object& dict) {
  std::set<std::string> keys;
  for (const pickle::Entry& entry : dict.entries()) keys.insert(entry.key->as_string());
  return keys;
}

/// A golden checkpoint and one that a run has written that loaded it.
struct SavedAgain {
  SavedAgain(const std::string& folder, const std::string& words) {
    const PretrainConfig config =
        testing::small_config(testing::golden_words(folder) + words + " --save-interval 1 --save " + directory.path());
    Trainer trainer(config, {});
    Checkpointer checkpointer(files, config, {});
    EXPECT_TRUE(checkpointer.load(trainer));
    checkpointer.save(trainer);
    const std::string name = fmt::format("iter_{:07d}", testing::golden_iteration(folder));
    golden.emplace(files, kGolden + folder + "/saved/" + name, Verify::kChecksums);
    own.emplace(files, directory.file(name), Verify::kChecksums);
  }
  PosixFileSystem files;
  testing::ScratchDirectory directory;
  std::optional<CheckpointReader> golden, own;
};

constexpr const char* kFullyReshardable = " --use-distributed-optimizer --dist-ckpt-optim-fully-reshardable";

TEST(GoldenCheckpoint, SavedAgainHasTheTensorsAndObjectsOfMegatron) {
  for (const auto& [folder, words] : {std::pair{"lm019/llama_1", kFullyReshardable},
                                      {"lm019/llama_plainopt", ""},
                                      {"lm019/gpt2_1", kFullyReshardable}}) {
    SCOPED_TRACE(folder);
    const SavedAgain saved(folder, words);
    const CheckpointMetadata &golden = saved.golden->metadata(), &own = saved.own->metadata();
    std::set<std::string> golden_objects, objects;
    for (const auto& [key, item] : golden.objects) golden_objects.insert(key);
    for (const auto& [key, item] : own.objects) objects.insert(key);
    golden_objects.insert("decoder.final_layernorm._extra_state/shard_0_1");  // of models with Transformer Engine
    EXPECT_EQ(objects, golden_objects);
    ASSERT_EQ(own.tensors.size(), golden.tensors.size());
    for (const auto& [key, tensor] : golden.tensors) {
      ASSERT_TRUE(own.tensors.contains(key)) << key;
      EXPECT_EQ(own.tensors.at(key).shape, tensor.shape) << key;
      EXPECT_EQ(own.tensors.at(key).type, tensor.type) << key;
      EXPECT_EQ(saved.own->read_whole_tensor(key), saved.golden->read_whole_tensor(key)) << key;
    }
    const TorchFile own_rng = saved.own->read_object(rng_state_key(0, 1, 0, 1)),
                    golden_rng = saved.golden->read_object(rng_state_key(0, 1, 0, 1));
    const pickle::Object &own_state = *own_rng.root().items()[0]->items()[0],
                         &golden_state = *golden_rng.root().items()[0]->items()[0];
    EXPECT_EQ(keys_of(own_state), keys_of(golden_state));
    EXPECT_EQ(keys_of(own_state.at(rng_state::kTracker)), keys_of(golden_state.at(rng_state::kTracker)));
  }
}

TEST(GoldenCheckpoint, SavedAgainHasTheFormOfMegatronsOptimizer) {
  for (const auto& [folder, words] :
       {std::pair{"lm019/llama_1", kFullyReshardable}, {"lm019/llama_plainopt", " --transformer-impl local"}}) {
    SCOPED_TRACE(folder);
    const SavedAgain saved(folder, words);
    const CheckpointReader::CommonState own = saved.own->read_common_state(),
                                        golden = saved.golden->read_common_state();
    EXPECT_EQ(keys_of(own.state()), keys_of(golden.state()));
    const pickle::Object &own_content = own.state().at(common_state::kContentMetadata),
                         &golden_content = golden.state().at(common_state::kContentMetadata);
    EXPECT_EQ(keys_of(own_content), keys_of(golden_content));
    for (const char* name :
         {common_state::kMemoryEfficient, common_state::kSingletonShards, common_state::kAvoidPrefix})
      if (const pickle::Object* expected = golden_content.find(name)) {
        EXPECT_EQ(own_content.at(name).as_bool(), expected->as_bool()) << name;
      }
    if (const pickle::Object* expected = golden_content.find(common_state::kOptimizerSharding)) {
      EXPECT_EQ(own_content.at(common_state::kOptimizerSharding).as_string(), expected->as_string());
    }
    const pickle::Object &own_outer = own.state().at(common_state::kOptimizer),
                         &golden_outer = golden.state().at(common_state::kOptimizer);
    EXPECT_EQ(keys_of(own_outer), keys_of(golden_outer));
    const pickle::Object &own_inner = own_outer.at(common_state::kOptimizer),
                         &golden_inner = golden_outer.at(common_state::kOptimizer);
    EXPECT_EQ(keys_of(own_inner), keys_of(golden_inner));
    if (const pickle::Object* expected = golden_inner.find(common_state::kState)) {
      EXPECT_EQ(keys_of(own_inner.at(common_state::kState)), keys_of(*expected));
    }
    const auto own_groups = own_inner.at(common_state::kParamGroups).items(),
               golden_groups = golden_inner.at(common_state::kParamGroups).items();
    ASSERT_EQ(own_groups.size(), golden_groups.size());
    for (size_t i = 0; i < own_groups.size(); ++i)
      for (const char* name : {"wd_mult", "lr_mult", "max_lr", "min_lr", "lr", "eps", "weight_decay"})
        EXPECT_EQ(own_groups[i]->at(name).as_float(), golden_groups[i]->at(name).as_float()) << name;
  }
}

/// An int of each group, and nothing for each parameter.
TEST(GoldenCheckpoint, SavedAgainHasTheStepsWhereAFusedAdamReadsThem) {
  for (const auto& [folder, words] : {std::pair{"lm019/llama_1", kFullyReshardable}, {"lm019/llama_plainopt", ""}}) {
    SCOPED_TRACE(folder);
    const SavedAgain saved(folder, words);
    const CheckpointReader::CommonState own = saved.own->read_common_state();
    const pickle::Object& inner = own.state().at(common_state::kOptimizer).at(common_state::kOptimizer);
    for (const pickle::Object* group : inner.at(common_state::kParamGroups).items()) {
      ASSERT_EQ(group->at("step").kind(), pickle::Kind::kInt);
      EXPECT_EQ(group->at("step").as_int(), testing::kGoldenAdamSteps);
      EXPECT_TRUE(group->at("bias_correction").as_bool());
    }
    if (const pickle::Object* state = inner.find(common_state::kState)) {
      EXPECT_TRUE(state->entries().empty());
    }
  }
}

/// Before FP32Optimizer's own form, checkpoints of fp32 had that of mixed precision, with the steps as a real number.
/// This one has 16 rows of vocabulary, those that follow are zero here.
TEST(OlderCheckpoint, ContinuesInFp32) {
  const std::string words =
      "--num-layers 1 --hidden-size 8 --num-attention-heads 2 --seq-length 8 --max-position-embeddings 8 "
      "--micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 1e-3 --lr-decay-style constant --vocab-size 61 "
      "--make-vocab-size-divisible-by 16 --tokenizer-type NullTokenizer --mock-data --allow-other-tokenizer --load " +
      testing::source_path("tests/golden/checkpoint/ours/fp32_nested_optimizer");
  for (const char* more : {"", " --use-distributed-optimizer", " --bf16"}) {
    PosixFileSystem files;
    const PretrainConfig config = testing::small_config(words + more);
    Trainer trainer(config, {});
    ASSERT_TRUE(Checkpointer(files, config, {}).load(trainer)) << more;
    EXPECT_EQ(trainer.optimizer().num_steps(), 2) << more;
    EXPECT_EQ(trainer.progress().iteration, 2) << more;
    for (double loss : testing::train(trainer, 2, 4)) EXPECT_TRUE(std::isfinite(loss)) << more;
  }
}

TEST(Checkpointer, StoresTheFormOfMegatronsFp32Optimizer) {
  PosixFileSystem files;
  const testing::ScratchDirectory directory;
  const PretrainConfig config =
      testing::small_config(testing::gpt2_like("--save-interval 1 --save " + directory.path()));
  Trainer trainer(config, {});
  testing::train(trainer, 0, 1);
  Checkpointer(files, config, {}).save(trainer);
  const CheckpointReader reader(files, directory.file("iter_0000001"), Verify::kChecksums);
  const CheckpointReader::CommonState common = reader.read_common_state();
  EXPECT_EQ(keys_of(common.state().at(common_state::kOptimizer)),
            (std::set<std::string>{common_state::kState, common_state::kParamGroups}));
}

}  // namespace
}  // namespace megatron
