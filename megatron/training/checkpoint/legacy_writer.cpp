#include "megatron/training/checkpoint/legacy_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/module_name.h"
#include "megatron/dist_checkpointing/stored_box_source.h"

namespace megatron {
namespace {

using pickle::Object;

constexpr int64_t kMebibyte = 1 << 20;
constexpr const char* kFile = "model_optim_rng";
constexpr const char* kTracker = "latest_checkpointed_iteration.txt";
constexpr std::string_view kWordEmbeddings = "embedding.word_embeddings.weight";

/// What the flags of the run say of its modules.
struct ModuleFlags {
  bool has_local_layers = false, ties_embeddings = true, has_grouped_experts = false, has_latent_attention = false;
};

bool is_set(const Object& arguments, std::string_view name) {
  const Object* value = arguments.find(name);
  return value && !value->is_none() && value->as_bool();
}

ModuleFlags module_flags_of(const Object& arguments) {
  const Object* implementation = arguments.find("transformer_impl");
  return {.has_local_layers = implementation && implementation->as_string() == "local",
          .ties_embeddings = !is_set(arguments, "untie_embeddings_and_output_weights"),
          .has_grouped_experts = is_set(arguments, "moe_grouped_gemm"),
          .has_latent_attention = is_set(arguments, "multi_latent_attention")};
}

/// One rank's tensor: boxes of a stored one, joined along their first axis that is not leading.
struct RankTensor {
  std::string key;  // of the stored tensor
  Shape shape;
  std::vector<Box> boxes;
};

/// The tensors of one rank's state dict, by the names of its modules.
class RankModel {
 public:
  RankModel(const CheckpointReader& reader, const ModuleFlags& flags, const LegacyLayout& layout, int64_t tensor_rank,
            int64_t stage)
      : reader_(reader), flags_(flags), layout_(layout), tensor_rank_(tensor_rank), stage_(stage) {
    for (const auto& [key, tensor] : reader_.metadata().tensors)
      if (key.find("optimizer.") == std::string::npos) add(key, tensor);
  }
  const std::vector<std::pair<std::string, RankTensor>>& tensors() const { return tensors_; }

 private:
  bool is_last() const { return stage_ + 1 == layout_.pipeline_parallel_size; }

  void add(const std::string& key, const GlobalTensor& tensor) {
    require<NotSupported>(!key.starts_with("mtp."),
                          "[checkpoint] {}: multi-token prediction in the form torch is unsupported. Keep torch_dist.",
                          key);
    constexpr std::string_view kLayers = "decoder.layers.";
    if (!key.starts_with(kLayers)) {
      const bool is_embedding = key.starts_with("embedding.");
      if (is_embedding ? stage_ == 0 : is_last()) add_tensor(key, key, key, tensor, {});
      // The last stage of several has a copy of tied embeddings.
      if (key == kWordEmbeddings && flags_.ties_embeddings && stage_ > 0 && is_last())
        add_tensor("output_layer.weight", key, key, tensor, {});
      return;
    }
    if (const ModuleName name = numbered_name(key); name.layer) {
      add_layer(key, tensor, name.name, *name.layer, num_layers_of_numbered(), {});
      return;
    }
    for (int64_t layer = 0; layer < tensor.shape[0]; ++layer)
      add_layer(key, tensor, key.substr(kLayers.size()), layer, tensor.shape[0], {layer});
  }

  static ModuleName numbered_name(const std::string& key) {
    const bool is_numbered = key.find_first_of("0123456789") == std::string_view("decoder.layers.").size();
    return is_numbered ? parse_module_name(key) : ModuleName{};
  }

  int64_t num_layers_of_numbered() const {
    int64_t count = 0;
    for (const auto& [key, tensor] : reader_.metadata().tensors)
      if (key.starts_with("decoder.layers."))
        if (const ModuleName name = numbered_name(key); name.layer) count = std::max(count, *name.layer + 1);
    return count;
  }

  void add_layer(const std::string& key, const GlobalTensor& tensor, const std::string& name, int64_t layer,
                 int64_t num_layers, const std::vector<int64_t>& leading) {
    const int64_t num_stages = layout_.pipeline_parallel_size;
    require<CheckpointError>(num_layers % num_stages == 0,
                             "[checkpoint] {} layers are not divisible by {} pipeline stages. Give another "
                             "--target-pipeline-parallel-size.",
                             num_layers, num_stages);
    const int64_t layers_of_stage = std::max<int64_t>(num_layers / num_stages, 1);
    if (layer / layers_of_stage != stage_) return;
    const std::string prefix = fmt::format("decoder.layers.{}.", layer % layers_of_stage);
    constexpr std::string_view kExperts = "mlp.experts.experts.";
    if (!name.starts_with(kExperts)) {
      add_tensor(prefix + module_name(name), key, name, tensor, leading);
      return;
    }
    const std::string rest = name.substr(kExperts.size());
    const int64_t num_experts = tensor.shape[static_cast<int>(leading.size())];
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      std::vector<int64_t> of_expert = leading;
      of_expert.push_back(expert);
      const std::string own = flags_.has_grouped_experts
                                  ? fmt::format("{}mlp.experts.{}{}", prefix, rest, expert)
                                  : fmt::format("{}mlp.experts.local_experts.{}.{}", prefix, expert, rest);
      add_tensor(own, key, name, tensor, of_expert);
    }
  }

  /// Without Transformer Engine the norms are modules of their own.
  std::string module_name(const std::string& name) const {
    if (!flags_.has_local_layers || flags_.has_latent_attention) return name;
    for (const auto& [stored, module] :
         {std::pair<std::string_view, std::string_view>{"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
          {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."}})
      if (name.starts_with(stored)) return std::string(module) + name.substr(stored.size());
    return name;
  }

  /// Whether gate and up follow each other in a linear_fc1: it has twice the rows that linear_fc2 has columns.
  bool is_gated(const std::string& key, int64_t rows) const {
    const size_t place = key.find("linear_fc1.");
    if (place == std::string::npos || key.find("layer_norm") != std::string::npos) return false;
    const auto second = reader_.metadata().tensors.find(key.substr(0, place) + "linear_fc2.weight");
    return second != reader_.metadata().tensors.end() &&
           rows == 2 * second->second.shape[second->second.shape.rank() - 1];
  }

  /// @param leading  positions in the leading axes: layer, expert.
  void add_tensor(const std::string& name, const std::string& key, const std::string& stored_name,
                  const GlobalTensor& tensor, const std::vector<int64_t>& leading) {
    const int num_leading = static_cast<int>(leading.size());
    Box box = Box::whole(tensor.shape);
    for (int dim = 0; dim < num_leading; ++dim) {
      box.offsets[dim] = leading[static_cast<size_t>(dim)];
      box.sizes[dim] = 1;
    }
    std::vector<Box> boxes = {box};
    if (const auto axis = tensor_parallel_axis(stored_name, flags_.has_local_layers);
        axis && num_leading + *axis < tensor.shape.rank()) {
      const int dim = num_leading + *axis;
      const int64_t num_parts = is_gated(key, tensor.shape[dim]) ? 2 : 1;
      const int64_t pieces = num_parts * layout_.tensor_parallel_size;
      require<CheckpointError>(tensor.shape[dim] % pieces == 0,
                               "[checkpoint] {} {} cannot be cut into {} tensor-parallel parts. Give another "
                               "--target-tensor-parallel-size.",
                               key, tensor.shape, layout_.tensor_parallel_size);
      boxes.clear();
      for (int64_t part = 0; part < num_parts; ++part) {
        Box cut = box;
        cut.sizes[dim] = tensor.shape[dim] / pieces;
        cut.offsets[dim] = (part * layout_.tensor_parallel_size + tensor_rank_) * cut.sizes[dim];
        boxes.push_back(cut);
      }
    }
    std::vector<int64_t> sizes(boxes[0].sizes.begin() + num_leading, boxes[0].sizes.end());
    if (!sizes.empty()) sizes[0] *= std::ssize(boxes);
    tensors_.emplace_back(name, RankTensor{key, Shape(std::span<const int64_t>(sizes)), std::move(boxes)});
  }

  const CheckpointReader& reader_;
  const ModuleFlags& flags_;
  const LegacyLayout& layout_;
  int64_t tensor_rank_, stage_;
  std::vector<std::pair<std::string, RankTensor>> tensors_;
};

/// Sets attributes of the stored Namespace. @param arguments  of a graph that `graph` owns.
void set_sizes(pickle::Graph& graph, Object& arguments, const LegacyLayout& layout) {
  const auto set = [&](std::string_view name, Object& value) {
    for (pickle::Entry& entry : arguments.mutable_instance().state->mutable_entries())
      if (entry.key->as_string() == name) entry.value = &value;
  };
  set("tensor_model_parallel_size", graph.integer(layout.tensor_parallel_size));
  set("pipeline_model_parallel_size", graph.integer(layout.pipeline_parallel_size));
  for (const char* name : {"expert_model_parallel_size", "context_parallel_size", "data_parallel_size"})
    set(name, graph.integer(1));
  set("expert_tensor_parallel_size", graph.integer(layout.tensor_parallel_size));
  set("world_size", graph.integer(layout.tensor_parallel_size * layout.pipeline_parallel_size));
  set("virtual_pipeline_model_parallel_size", graph.none());
  set("use_distributed_optimizer", graph.boolean(false));
  for (const char* name : {"no_save_optim", "no_save_rng"}) set(name, graph.boolean(true));
  set("ckpt_format", graph.text("torch"));
}

/// The file's object: arguments, iteration and the rank's tensors.
TorchObject rank_object(const CheckpointReader& reader, const RankModel& model, const LegacyLayout& layout,
                        const std::function<void(int64_t)>& on_bytes) {
  CheckpointReader::CommonState common = reader.read_common_state();
  const Object& stored = common.state();
  TorchObject object;
  object.graph = std::move(common.file.take_object().graph);
  pickle::Graph& graph = object.graph;
  Object& root = graph.dict();
  for (const pickle::Entry& entry : stored.entries()) {
    const std::string& name = entry.key->as_string();
    if (name == common_state::kArgs) set_sizes(graph, *entry.value, layout);
    if (name == common_state::kArgs || name == common_state::kCheckpointVersion || name == common_state::kIteration ||
        name == common_state::kFlops)
      root.mutable_entries().push_back(entry);
  }
  Object& state = graph.dict();
  for (const auto& [name, tensor] : model.tensors())
    graph.set(state, name,
              object.add_tensor(reader.metadata().tensors.find(tensor.key)->second.type, tensor.shape,
                                std::make_unique<StoredBoxSource>(reader, tensor.key, tensor.boxes, on_bytes)));
  graph.set(root, "model", state);
  object.root = &root;
  return object;
}

}  // namespace

void write_legacy_weights(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                          const LegacyLayout& layout, Progress& progress) {
  require<CheckpointError>(!files.exists(save) || files.list(save).empty(),
                           "[checkpoint] --save {} holds files already, which a conversion does not replace. Give a "
                           "new folder.",
                           save);
  const CheckpointReader::CommonState common = reader.read_common_state();
  const int64_t iteration = common.state().at(common_state::kIteration).as_int();
  const ModuleFlags flags = module_flags_of(common.state().at(common_state::kArgs));
  std::vector<std::pair<std::string, RankModel>> ranks;  // all are cut before the first is written
  for (int64_t tensor = 0; tensor < layout.tensor_parallel_size; ++tensor)
    for (int64_t stage = 0; stage < layout.pipeline_parallel_size; ++stage)
      ranks.emplace_back(layout.pipeline_parallel_size > 1 ? fmt::format("mp_rank_{:02}_{:03}", tensor, stage)
                                                           : fmt::format("mp_rank_{:02}", tensor),
                         RankModel(reader, flags, layout, tensor, stage));
  int64_t total = 0, done = 0;
  for (const auto& [name, model] : ranks)
    for (const auto& [tensor_name, tensor] : model.tensors())
      total += tensor.shape.num_elements() * size_of(reader.metadata().tensors.find(tensor.key)->second.type);
  const std::function<void(int64_t)> count = [&](int64_t bytes) { progress.update((done += bytes) / kMebibyte, ""); };
  progress.begin({.title = "converting", .unit = "MiB", .total = total / kMebibyte});
  const std::string folder = join_path(save, fmt::format("iter_{:07}", iteration));
  for (const auto& [name, model] : ranks) {
    create_durable_directories(files, join_path(folder, name));
    const auto file =
        files.open_for_writing(join_path(join_path(folder, name), fmt::format("{}.pt", kFile)), WriteMode::kTruncate);
    write_torch_file(*file, rank_object(reader, model, layout, count), kFile);
    file->sync();
    file->close();
    files.sync_directory(join_path(folder, name));
  }
  progress.end();
  replace_file(files, join_path(save, kTracker), fmt::format("{}", iteration));  // names what is whole
}

}  // namespace megatron
