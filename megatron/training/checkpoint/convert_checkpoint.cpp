#include "megatron/training/checkpoint/convert_checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "megatron/dist_checkpointing/stored_box_source.h"
#include "megatron/training/checkpoint/checkpoint_objects.h"
#include "megatron/training/checkpoint/common_state.h"

namespace megatron {
namespace {

using pickle::Graph;
using pickle::Object;

constexpr int64_t kMebibyte = 1 << 20;
constexpr std::string_view kLayers = "decoder.layers.";

/// Whether layers of this name are one tensor.
bool is_stacked(std::string_view key) {
  const size_t place = key.find(kLayers);
  return place != std::string_view::npos && !std::isdigit(static_cast<unsigned char>(key[place + kLayers.size()]));
}

/// The entries of a dict but these.
Object& copy_without(Graph& graph, const Object& dict, std::string_view left_out) {
  Object& copy = graph.dict();
  for (const pickle::Entry& entry : dict.entries())
    if (entry.key->as_string() != left_out) copy.mutable_entries().push_back(entry);
  return copy;
}

/// The part of an optimizer's state that is no tensor, in the form that make_common_state() gives it.
class ConvertedOptimizer {
 public:
  ConvertedOptimizer(const TorchFile& file, const Object& stored, bool is_distributed, bool has_local_layers)
      : is_distributed_(is_distributed), has_local_layers_(has_local_layers) {
    if (stored.kind() == pickle::Kind::kList)
      all_.assign(stored.items().begin(), stored.items().end());
    else
      all_ = {&stored};
    for (const Object* one : all_) {
      const Object* inner = one->find(common_state::kOptimizer);
      steps_.push_back(stored_num_steps(file, inner ? *inner : *one).value_or(0));
      const Object* scaler = one->find(common_state::kGradScaler);
      const Object* scale = scaler ? scaler->find("scale") : nullptr;
      scales_.push_back(scale ? static_cast<float>(stored_number(file, *scale)) : 0.0F);
    }
  }

  /// @param object  owns the stored objects.
  Object& make(TorchObject& object) const {
    if (all_.size() == 1) return make_one(object, 0);
    Object& chain = object.graph.dict();
    for (size_t i = 0; i < all_.size(); ++i)
      chain.mutable_entries().push_back({&object.graph.integer(static_cast<int64_t>(i)), &make_one(object, i)});
    return chain;
  }

 private:
  Object& make_one(TorchObject& object, size_t index) const {
    Graph& graph = object.graph;
    const Object& stored = *all_[index];
    const Object* nested = stored.find(common_state::kOptimizer);
    std::vector<Object*> groups;
    for (const Object* group : (nested ? *nested : stored).at(common_state::kParamGroups).items()) {
      Object& copy = copy_without(graph, *group, "params");
      if (!copy.find("step")) graph.set(copy, "step", graph.integer(steps_[index]));
      groups.push_back(&copy);
    }
    Object& inner = graph.dict();
    if (!is_distributed_) {
      Object& state = graph.dict();
      const auto steps = static_cast<float>(steps_[index]);
      if (has_local_layers_)
        graph.set(state, common_state::kCommonStep, object.add_tensor(ConstView{&steps, DType::kFloat32, {}, {}}));
      graph.set(inner, common_state::kState, state);
    }
    graph.set(inner, common_state::kParamGroups, graph.list(std::move(groups)));
    if (!nested) return inner;  // FP32Optimizer
    Object& outer = graph.dict();
    graph.set(outer, common_state::kOptimizer, inner);
    if (const Object* scaler = stored.find(common_state::kGradScaler)) {
      Object& copy = copy_without(graph, *scaler, "scale");
      if (scaler->find("scale"))
        graph.set(copy, "scale", object.add_tensor(ConstView{&scales_[index], DType::kFloat32, {1}, {1}}));
      graph.set(outer, common_state::kGradScaler, copy);
    }
    if (is_distributed_) graph.set(outer, common_state::kShardingType, graph.text(common_state::kFullyReshardable));
    return outer;
  }

  bool is_distributed_, has_local_layers_;
  std::vector<const Object*> all_;
  std::vector<int64_t> steps_;
  std::vector<float> scales_;
};

bool is_distributed(const CheckpointMetadata& metadata) {
  const auto first = metadata.tensors.lower_bound(optimizer_state_key(optimizer_state::kDistributedMaster, ""));
  return first != metadata.tensors.end() &&
         first->first.starts_with(optimizer_state_key(optimizer_state::kDistributedMaster, ""));
}

TorchObject common_state_of(const CheckpointReader& reader) {
  CheckpointReader::CommonState common = reader.read_common_state();
  const Object& stored = common.state();
  const bool distributed = is_distributed(reader.metadata());
  std::optional<ConvertedOptimizer> optimizer;
  const Object* implementation = stored.at(common_state::kArgs).find("transformer_impl");
  if (const Object* state = stored.find(common_state::kOptimizer))
    optimizer.emplace(common.file, *state, distributed, implementation && implementation->as_string() == "local");
  TorchObject object;
  object.graph = std::move(common.file.take_object().graph);
  Graph& graph = object.graph;
  Object& state = graph.dict();
  static constexpr auto kKept =
      std::to_array<std::string_view>({common_state::kArgs, common_state::kCheckpointVersion, common_state::kIteration,
                                       common_state::kScheduler, common_state::kFlops});
  for (const pickle::Entry& entry : stored.entries())
    if (std::ranges::find(kKept, entry.key->as_string()) != kKept.end()) state.mutable_entries().push_back(entry);
  if (optimizer) graph.set(state, common_state::kOptimizer, optimizer->make(object));
  Object& content = graph.dict();
  if (distributed) graph.set(content, common_state::kOptimizerSharding, graph.text(common_state::kFullyReshardable));
  graph.set(content, common_state::kSingletonShards, graph.boolean(false));
  graph.set(content, common_state::kAvoidPrefix, graph.boolean(true));
  graph.set(state, common_state::kContentMetadata, content);
  object.root = &graph.list({&state});
  return object;
}

/// The parameters of the model, for the empty extra states of their modules.
std::vector<ParameterPlace> parameter_places(const CheckpointMetadata& metadata) {
  std::vector<ParameterPlace> places;
  for (const auto& [key, tensor] : metadata.tensors) {
    if (key.starts_with("optimizer.") || !key.starts_with("decoder.")) continue;
    const bool stacked = is_stacked(key), has_experts = key.find(".experts.experts.") != std::string::npos;
    const int64_t num_layers = stacked ? tensor.shape[0] : 1, num_experts = has_experts ? tensor.shape[stacked] : 1;
    for (int64_t layer = 0; layer < num_layers; ++layer)
      for (int64_t expert = 0; expert < num_experts; ++expert) {
        places.push_back({.name = {key, stacked ? std::optional(layer) : std::nullopt}});
        if (!has_experts) continue;
        places.back().expert = expert;
        places.back().num_experts = num_experts;
      }
  }
  return places;
}

int64_t num_layers_of(const CheckpointMetadata& metadata) {
  for (const auto& [key, tensor] : metadata.tensors)
    if (key.starts_with(kLayers) && is_stacked(key)) return tensor.shape[0];
  return 1;
}

void require_new(const FileSystem& files, const std::string& directory) {
  require<CheckpointError>(!files.exists(directory) || files.list(directory).empty(),
                           "[checkpoint] --save {} holds files already, which a conversion does not replace. Give a "
                           "new folder.",
                           directory);
}

}  // namespace

void convert_to_torch_dist(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                           Progress& progress) {
  require<CheckpointError>(reader.is_legacy(), "[checkpoint] {} is of the form torch_dist already.",
                           reader.directory());
  require<NotSupported>(reader.optimizer_problem().empty(), "{}", reader.optimizer_problem());
  require_new(files, save);
  const CheckpointMetadata& metadata = reader.metadata();
  metadata.require_complete();
  TorchObject common = common_state_of(reader);
  const int64_t iteration = common.root->items()[0]->at(common_state::kIteration).as_int();
  CheckpointDirectory checkpoints(files, save);
  checkpoints.begin(iteration);
  CheckpointWriter writer(files, checkpoints.staging_path(iteration), 0);
  writer.add_object(std::string(kCommonStateKey), std::move(common));
  add_extra_states(writer, parameter_places(metadata), num_layers_of(metadata));
  int64_t done = 0;
  const std::function<void(int64_t)> count = [&](int64_t bytes) { progress.update((done += bytes) / kMebibyte, ""); };
  for (const auto& [key, tensor] : metadata.tensors) {
    Box box = Box::whole(tensor.shape);
    const int64_t num_chunks = is_stacked(key) ? tensor.shape[0] : 1;  // as Megatron's, one for each layer
    if (num_chunks > 1) box.sizes[0] = 1;
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) {
      if (num_chunks > 1) box.offsets[0] = chunk;
      writer.add_tensor(key, tensor.type, tensor.shape, box,
                        std::make_unique<StoredBoxSource>(reader, key, std::vector<Box>{box}, count));
    }
  }
  checkpoints.require_space(writer.estimated_bytes());
  progress.begin({.title = "converting", .unit = "MiB", .total = writer.tensor_bytes() / kMebibyte});
  const CheckpointMetadata written = writer.write(1, WriteThreads::kCallerAlone);
  progress.end();
  checkpoints.commit(iteration, written, Integrity::kNone);
}

void convert_to_safetensors(FileSystem& files, const CheckpointReader& reader, const std::string& directory,
                            int64_t max_shard_bytes, Progress& progress) {
  require_new(files, directory);
  create_durable_directories(files, directory);
  int64_t done = 0, total = 0;
  const std::function<void(int64_t)> count = [&](int64_t bytes) { progress.update((done += bytes) / kMebibyte, ""); };
  std::vector<SafetensorsItem> items;
  for (const auto& [key, tensor] : reader.metadata().tensors) {
    if (key.find("optimizer.") != std::string::npos) continue;
    items.push_back({key, tensor.type, tensor.shape,
                     std::make_unique<StoredBoxSource>(reader, key, std::vector<Box>{Box::whole(tensor.shape)})});
    total += items.back().source->bytes();
  }
  progress.begin({.title = "converting", .unit = "MiB", .total = total / kMebibyte});
  write_safetensors_folder(files, directory, std::move(items), max_shard_bytes, count);
  progress.end();
}

}  // namespace megatron
