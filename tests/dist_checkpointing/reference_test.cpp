// torch and Megatron Core read what we write. Needs a Python with torch, safetensors and, better, megatron-core:
//   MEGATRON_REFERENCE_PYTHON=/path/to/python ctest -L reference
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "tests/core/random_boxes.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using pickle::Object;

constexpr int kNumRanks = 3;

struct Whole {
  std::string key;
  ElementType type;
  Shape shape;
  std::vector<Box> boxes;
  std::vector<std::byte> bytes;
};

/// Tensors of a model in which layers are stacked, of every type that training stores, cut in many ways.
std::vector<Whole> make_tensors() {
  std::mt19937 random(5);
  std::vector<Whole> tensors;
  const auto add = [&](const std::string& key, ElementType type, const Shape& shape, std::vector<Box> boxes) {
    std::vector<std::byte> bytes(static_cast<size_t>(shape.num_elements() * size_of(type)));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 64);  // no NaN in any type
    tensors.push_back({key, type, shape, std::move(boxes), std::move(bytes)});
  };
  const Shape weight{2, 12, 10};
  add("decoder.layers.mlp.linear_fc1.weight", ElementType::kBFloat16, weight,
      random_tiling(Box::whole(weight), 9, random));
  for (std::string_view state : {optimizer_state::kDistributedMaster, optimizer_state::kFirstMoment})
    add(optimizer_state_key(state, "decoder.layers.mlp.linear_fc1.weight"), ElementType::kFloat32, weight,
        boxes_of_flat_range(Box::whole(weight), 0, 77));
  for (size_t i = 1; i < tensors.size(); ++i)
    for (const Box& box : boxes_of_flat_range(Box::whole(weight), 77, weight.num_elements()))
      tensors[i].boxes.push_back(box);
  add("decoder.final_layernorm.weight", ElementType::kFloat16, {10}, {Box::whole({10})});
  add("step", ElementType::kInt64, {}, {Box::whole({})});
  add("mask", ElementType::kUInt8, {0, 3}, {Box::whole({0, 3})});
  add("double", ElementType::kFloat64, {3}, {Box::whole({3})});
  add("int32", ElementType::kInt32, {3}, {Box::whole({3})});
  add("fp8", ElementType::kFloat8E4M3, {4, 4}, {{{0, 0}, {4, 1}}, {{0, 1}, {4, 3}}});
  return tensors;
}

std::vector<std::byte> part_of(const Whole& tensor, const Box& box) {
  const int64_t width = size_of(tensor.type);
  std::vector<std::byte> part(static_cast<size_t>(box.sizes.num_elements() * width));
  const Shape strides = tensor.shape.contiguous_strides();
  const int64_t first = element_offset(box.offsets, strides);
  for_each_run(box.sizes, strides, box.sizes.contiguous_strides(), [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(tensor.bytes.begin() + (first + from) * width, count * width, part.begin() + to * width);
  });
  return part;
}

/// The tensors that read_with_torch.py checks.
Object& make_state(TorchObject& object) {
  pickle::Graph& graph = object.graph;
  Object& args = graph.instance(graph.global("argparse", "Namespace"), &graph.dict());
  graph.set(args, "num_layers", graph.integer(2));
  graph.set(args, "lr", graph.real(0.1));
  graph.set(args, "tokenizer_type", graph.text("NullTokenizer"));
  graph.set(args, "bf16", graph.boolean(true));
  graph.set(args, "spec", graph.none());
  graph.set(args, "data_path", graph.list({&graph.text("0.5"), &graph.text("a")}));
  graph.set(args, "params_dtype", graph.global("torch", "bfloat16"));
  Object& group = graph.dict();
  graph.set(group, "lr", graph.real(0.25));
  graph.set(group, "betas", graph.tuple({&graph.real(0.9), &graph.real(0.95)}));
  graph.set(group, "step", graph.integer(int64_t{1} << 40));
  Object &inner = graph.dict(), &optimizer = graph.dict(), &state = graph.dict();
  graph.set(inner, common_state::kParamGroups, graph.list({&group}));
  graph.set(optimizer, common_state::kOptimizer, inner);
  std::vector<uint8_t> random(16);
  for (size_t i = 0; i < random.size(); ++i) random[i] = static_cast<uint8_t>(i);
  graph.set(state, common_state::kArgs, args);
  graph.set(state, common_state::kCheckpointVersion, graph.real(common_state::kVersion));
  graph.set(state, common_state::kIteration, graph.integer(10));
  graph.set(state, common_state::kOptimizer, optimizer);
  graph.set(state, "random", object.add_tensor(ConstView{random.data(), DType::kUInt8, {16}, {1}}));
  return state;
}

void save(PosixFileSystem& files, CheckpointDirectory& directory, const std::vector<Whole>& tensors) {
  directory.begin(10);
  const std::string path = directory.staging_path(10);
  CheckpointMetadata metadata;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    CheckpointWriter writer(files, path, rank);
    for (const Whole& tensor : tensors)
      for (size_t i = 0; i < tensor.boxes.size(); ++i)
        if (static_cast<int>(i % kNumRanks) == rank)
          writer.add_tensor(tensor.key, tensor.type, tensor.shape, tensor.boxes[i],
                            make_owned_source(part_of(tensor, tensor.boxes[i])));
    if (rank == 0) {
      TorchObject object;
      object.root = &object.graph.list({&make_state(object)});
      writer.add_object(std::string(kCommonStateKey), std::move(object));
    }
    metadata.merge(writer.write(rank + 1));
  }
  TorchObject common;  // for Megatron Core up to 0.16
  common.root = &make_state(common);
  const auto file = files.open_for_writing(join_path(path, kCommonStateFile), WriteMode::kTruncate);
  write_torch_file(*file, common, "common");
  file->close();
  directory.commit(10, metadata, Integrity::kSha256);
}

TEST(Reference, TorchAndMegatronReadWhatWeWrite) {
  const char* python = std::getenv("MEGATRON_REFERENCE_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "set MEGATRON_REFERENCE_PYTHON to a Python with torch and safetensors";
  PosixFileSystem files;
  const std::string root = ::testing::TempDir() + "dist_checkpointing_reference_" + std::to_string(::getpid());
  files.remove(root);
  CheckpointDirectory directory(files, root);
  const std::vector<Whole> tensors = make_tensors();
  save(files, directory, tensors);
  const std::string expected = join_path(root, "expected.safetensors");
  std::vector<SafetensorsItem> items;
  for (const Whole& tensor : tensors)
    items.push_back({tensor.key, tensor.type, tensor.shape, make_owned_source(tensor.bytes)});
  const auto file = files.open_for_writing(expected, WriteMode::kTruncate);
  write_safetensors(*file, std::move(items), {});
  file->close();
  const std::string command = fmt::format("'{}' -W ignore '{}/tests/dist_checkpointing/read_with_torch.py' '{}' '{}'",
                                          python, testing::source_path(), directory.path(10), expected);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  files.remove(root);
}

}  // namespace
}  // namespace megatron
