// Checkpoints that Megatron-LM, Megatron Core and torch.distributed.checkpoint wrote, against what their own readers
// say is in them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/metadata_pickle.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "tests/dist_checkpointing/memory_file_system.h"
#include "tests/dist_checkpointing/tagged_json.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using nlohmann::json;

const PosixFileSystem kFiles;

CheckpointReader open_case(const std::string& name, Verify verify) {
  return CheckpointReader(kFiles, testing::golden_path("checkpoint/" + saved_folder(name)), verify);
}

SafetensorsFile open_safetensors(const std::string& name) {
  return SafetensorsFile(kFiles.open_for_reading(testing::golden_path("checkpoint/" + name)), name);
}

Shape shape_of(const json& sizes) {
  const auto values = sizes.get<std::vector<int64_t>>();
  return Shape(std::span(values));
}

/// Chunks of chunks.json, in any order.
void expect_chunks(const GlobalTensor& tensor, const json& expected) {
  ASSERT_EQ(tensor.chunks.size(), expected.size());
  for (const auto& row : expected) {
    const StoredChunk chunk{{shape_of(row[0]), shape_of(row[1])}, {row[2], row[3], row[4]}};
    EXPECT_NE(std::ranges::find(tensor.chunks, chunk), tensor.chunks.end()) << row;
  }
}

class GoldenCase : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenCase, IndexNamesTheChunksThatTorchSees) {
  const CheckpointReader reader = open_case(GetParam(), Verify::kNothing);
  const json chunks = read_golden_json(std::string(GetParam()) + "/chunks.json");
  const CheckpointMetadata& metadata = reader.metadata();
  ASSERT_EQ(metadata.tensors.size() + metadata.objects.size(), chunks.size());
  for (const auto& [key, expected] : chunks.items()) {
    if (expected.contains("object")) {
      const json& item = expected["object"];
      EXPECT_EQ(metadata.objects.at(key), (StoredItem{item[0], item[1], item[2]})) << key;
      continue;
    }
    const GlobalTensor& tensor = metadata.tensors.at(key);
    EXPECT_EQ(tensor.shape, shape_of(expected["shape"])) << key;
    EXPECT_EQ(name_of(tensor.type), expected["dtype"].get<std::string>()) << key;
    expect_chunks(tensor, expected["chunks"]);
  }
}

/// The gaps between the parameters of a bucket were never initialised, so their content differs between runs.
bool has_gaps(const std::string& key) { return key.find("optimizer.distributed.") != std::string::npos; }

TEST_P(GoldenCase, EveryTensorIsWhatTorchReads) {
  const json description = read_golden_json(std::string(GetParam()) + "/case.json");
  const SafetensorsFile expected = open_safetensors("expected/" + description["expected"].get<std::string>());
  for (const Verify verify : {Verify::kChecksums, Verify::kNothing}) {
    const CheckpointReader reader = open_case(GetParam(), verify);
    ASSERT_FALSE(reader.metadata().tensors.empty());
    for (const auto& [key, tensor] : reader.metadata().tensors) {
      EXPECT_EQ(tensor.type, expected.tensor(key).type) << key;
      EXPECT_EQ(tensor.shape, expected.tensor(key).shape) << key;
      if (has_gaps(key)) continue;
      EXPECT_TRUE(reader.read_whole_tensor(key) == expected.read(key)) << key;
    }
  }
}

/// The fixture has the number of arguments in place of the arguments, except in a few cases.
void expect_common_state(const CheckpointReader::CommonState& common, const json& entries) {
  const pickle::Object& state = common.state();
  ASSERT_EQ(state.entries().size(), entries.size());
  for (const auto& entry : entries) {
    const pickle::Object& value = state.at(entry[0].get<std::string>());
    if (entry[1].is_string())
      EXPECT_EQ(fmt::format("Namespace with {} entries", value.instance().state->entries().size()), entry[1]);
    else
      EXPECT_TRUE(matches(value, entry[1], &common.file)) << entry[0];
  }
}

TEST_P(GoldenCase, EveryObjectIsWhatTorchReads) {
  const CheckpointReader reader = open_case(GetParam(), Verify::kChecksums);
  const json objects = read_golden_json(std::string(GetParam()) + "/objects.json");
  ASSERT_FALSE(objects.empty());
  for (const auto& [key, expected] : objects.items()) {
    if (key == "common.pt" || key == kCommonStateKey) {
      const json& state = key == "common.pt" ? expected : expected["list"][0];
      expect_common_state(reader.read_common_state(), state["dict"]);
      continue;
    }
    const TorchFile file = reader.read_object(key);
    EXPECT_TRUE(matches(file.root(), expected, &file)) << key;
  }
}

TEST_P(GoldenCase, VerifiesWithoutAProblem) {
  const CheckpointReader reader = open_case(GetParam(), Verify::kChecksums);
  EXPECT_EQ(reader.verify(), std::vector<std::string>());
  EXPECT_NO_THROW(reader.check_files());
}

TEST_P(GoldenCase, CommonStateHasTheIteration) {
  const auto common = open_case(GetParam(), Verify::kChecksums).read_common_state();
  const json description = read_golden_json(std::string(GetParam()) + "/case.json");
  EXPECT_EQ(common.state().at(common_state::kIteration).as_int(), description["iteration"].get<int64_t>());
  EXPECT_EQ(common.state().at(common_state::kCheckpointVersion).as_float(), common_state::kVersion);
  EXPECT_EQ(common.state().at(common_state::kArgs).at("hidden_size").as_int(),
            description["sizes"]["h"].get<int64_t>());
}

TEST_P(GoldenCase, IndexRoundTripsThroughOurOwnBytes) {
  const CheckpointReader reader = open_case(GetParam(), Verify::kNothing);
  const std::string bytes = write_metadata(reader.metadata());
  EXPECT_EQ(parse_metadata(std::as_bytes(std::span(bytes)), "test"), reader.metadata());
}

INSTANTIATE_TEST_SUITE_P(Megatron, GoldenCase,
                         ::testing::Values("lm019/llama_1", "lm019/llama_plainopt", "lm019/gpt2_1", "lm019/moe_1",
                                           "lm019/moemix_1", "lm019/mla_1", "lm019/llama_tp2", "lm019/llama_tp2pp2",
                                           "lm019/gpt2_pp2", "lm019/moe_ep2", "lm019/llama_dp2", "lm019/llama_tp2dp2",
                                           "core016/llama_1", "core016/llama_tp2pp2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

TEST(PlainTorchCheckpoint, HoldsWhatTorchReads) {
  for (const std::string name : {"varied", "nested"}) {
    const CheckpointReader reader(kFiles, testing::golden_path("checkpoint/dcp/" + name), Verify::kChecksums);
    const json description = read_golden_json("dcp/" + name + ".json");
    const SafetensorsFile expected = open_safetensors("dcp/" + name + ".safetensors");
    ASSERT_EQ(reader.metadata().tensors.size(), expected.tensors().size());
    for (const auto& [key, tensor] : expected.tensors()) {
      EXPECT_EQ(reader.metadata().tensors.at(key).type, tensor.type) << key;
      EXPECT_TRUE(reader.read_whole_tensor(key) == expected.read(key)) << key;
    }
    ASSERT_EQ(reader.metadata().objects.size(), description["objects"].size());
    for (const auto& [key, value] : description["objects"].items()) {
      const TorchFile file = reader.read_object(key);
      EXPECT_TRUE(matches(file.root(), value, &file)) << key;
    }
    EXPECT_EQ(reader.verify(), std::vector<std::string>());
  }
}

TEST(PlainTorchCheckpoint, MayHaveAFileForEachItem) {
  const CheckpointReader reader(kFiles, testing::golden_path("checkpoint/dcp/single_file_per_tensor"),
                                Verify::kChecksums);
  const json description = read_golden_json("dcp/single_file_per_tensor.json");
  EXPECT_EQ(reader.metadata().tensors.size() + reader.metadata().objects.size(), description["keys"].size());
  for (const auto& [key, expected] : description["keys"].items()) {
    if (expected.contains("object")) continue;
    const json& chunk = expected["chunks"][0];
    EXPECT_EQ(reader.metadata().tensors.at(key).chunks[0].item,
              (StoredItem{chunk["file"], chunk["at"], chunk["bytes"]}));
  }
  EXPECT_EQ(reader.verify(), std::vector<std::string>());
}

/// Everything that a rank's file holds, in its order, given to our writer.
std::string rewritten_data_file(const std::string& name) {
  const CheckpointReader reader = open_case(name, Verify::kChecksums);
  std::map<int64_t, std::pair<std::string, const StoredChunk*>> items;
  for (const auto& [key, item] : reader.metadata().objects) items[item.offset] = {key, nullptr};
  for (const auto& [key, tensor] : reader.metadata().tensors)
    for (const StoredChunk& chunk : tensor.chunks) items[chunk.item.offset] = {key, &chunk};
  MemoryFileSystem files;
  CheckpointWriter writer(files, "", 0);
  for (const auto& [offset, named] : items) {
    const auto& [key, chunk] = named;
    if (chunk != nullptr) {
      const GlobalTensor& tensor = reader.metadata().tensors.at(key);
      const auto dtype = info(tensor.type).dtype.value();
      std::vector<std::byte> bytes(static_cast<size_t>(chunk->box.sizes.num_elements() * size_of(dtype)));
      reader.read_tensor(key, tensor.shape, chunk->box.offsets,
                         {bytes.data(), dtype, chunk->box.sizes, chunk->box.sizes.contiguous_strides()});
      writer.add_tensor(key, tensor.type, tensor.shape, chunk->box, make_owned_source(std::move(bytes)));
      continue;
    }
    TorchFile file = reader.read_object(key);
    TorchObject object;
    for (int i = 0; file.has_storage(std::to_string(i)); ++i)
      object.add_storage(make_owned_source(file.read_storage(std::to_string(i))));
    pickle::Pickle pickle = file.take_object();
    object.graph = std::move(pickle.graph);
    object.root = pickle.root;
    writer.add_object(key, std::move(object));
  }
  const CheckpointMetadata stored = writer.write(1);
  for (const auto& [key, item] : reader.metadata().objects) EXPECT_EQ(stored.objects.at(key), item) << key;
  return read_file(files, "__0_0.distcp");
}

TEST(CheckpointWriter, GivesMegatronsBytes) {
  for (const char* name : {"lm019/llama_1", "lm019/gpt2_1", "lm019/moe_1", "lm019/llama_plainopt", "lm019/mla_1"})
    EXPECT_TRUE(same_bytes(rewritten_data_file(name), read_golden(saved_folder(name) + "__0_0.distcp"))) << name;
}

TEST(MegatronNames, AreTheKeysOfRealCheckpoints) {
  const auto has = [](const char* name, const std::string& key) {
    const CheckpointReader reader = open_case(name, Verify::kNothing);
    return reader.has_tensor(key) || reader.has_object(key);
  };
  const std::string norm = "decoder.layers.self_attention.linear_qkv.layer_norm_weight";
  EXPECT_TRUE(has("lm019/llama_1", norm));
  for (const std::string_view state :
       {optimizer_state::kDistributedMaster, optimizer_state::kFirstMoment, optimizer_state::kSecondMoment})
    EXPECT_TRUE(has("lm019/llama_1", optimizer_state_key(state, norm))) << state;
  EXPECT_TRUE(has("lm019/llama_plainopt", optimizer_state_key(optimizer_state::kMaster, "output_layer.weight")));
}

}  // namespace
}  // namespace megatron
