#include "megatron/training/checkpoint/legacy_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/module_name.h"
#include "megatron/dist_checkpointing/stored_box_source.h"
#include "megatron/training/checkpoint/checkpoint_objects.h"
#include "megatron/training/checkpoint/reshard_checkpoint.h"
#include "megatron/training/checkpoint/target_ranks.h"

namespace megatron {
namespace {

using pickle::Object;

constexpr int64_t kMebibyte = 1 << 20;
constexpr const char* kModel = "model_optim_rng";
constexpr const char* kBuffers = "distrib_optim";

void write_file(FileSystem& files, const std::string& folder, const char* name, const TorchObject& object) {
  const auto file = files.open_for_writing(join_path(folder, fmt::format("{}.pt", name)), WriteMode::kTruncate);
  write_torch_file(*file, object, name);
  file->sync();
  file->close();
}

}  // namespace

LegacyWriter::LegacyWriter(const CheckpointReader& reader, const TargetLayout& layout,
                           std::function<void(int64_t)> on_bytes)
    : reader_(reader),
      layout_(layout),
      on_bytes_(std::move(on_bytes)),
      form_(optimizer_form_of(reader.metadata())),
      model_(model_tensors(reader.metadata())),
      states_(optimizer_states_of(reader)) {
  const ModelDivision& division = layout_.division;
  require<NotSupported>(
      !layout_.has_experts || division.expert_tensor == division.tensor,
      "[checkpoint] the form torch cannot hold expert tensor parallelism of {} beside tensor "
      "parallelism of {}: its folders have one number for both. Give equal sizes, or keep torch_dist.",
      division.expert_tensor, division.tensor);
  for (const auto& [key, tensor] : model_)
    require<NotSupported>(!key.starts_with("mtp.") || division.has_one_stage(),
                          "[checkpoint] {}: multi-token prediction on several pipeline stages in the form torch is "
                          "unsupported. Keep torch_dist, or give one stage.",
                          key);
  const CheckpointReader::CommonState common = reader_.read_common_state();
  if (common.state().find(common_state::kOptimizer)) optimizer_.emplace(reader_);
  const Object* without = common.state().at(common_state::kArgs).find("no_save_rng");
  has_generators_ = !(without && !without->is_none() && without->as_bool());
}

std::vector<LegacyWriter::Rank> LegacyWriter::ranks() const {
  const ModelDivision& division = layout_.division;
  std::vector<Rank> all;
  for (int64_t stage = 0; stage < division.pipeline; ++stage)
    for (int64_t expert = 0; expert < division.expert; ++expert)
      for (int64_t tensor = 0; tensor < division.tensor; ++tensor) all.push_back({tensor, stage, expert});
  return all;
}

std::string LegacyWriter::folder_of(const Rank& rank) const {
  return fmt::format("mp_rank_{:02}{}{}", rank.tensor,
                     layout_.division.pipeline > 1 ? fmt::format("_{:03}", rank.stage) : "",
                     layout_.division.expert > 1 ? fmt::format("_{:03}", rank.expert) : "");
}

LegacyWriter::Chunks LegacyWriter::chunks_of(const Rank& rank, RankContents contents) const {
  Chunks chunks;
  for (int64_t chunk = 0; chunk < layout_.division.chunks; ++chunk)
    chunks.push_back(
        tensors_of_rank(model_, layout_.division, layout_.part(rank.stage, chunk), stage_rank(rank), contents));
  return chunks;
}

int64_t LegacyWriter::tensor_bytes(const Rank& rank) const {
  int64_t bytes = 0;
  for (const auto& chunk : chunks_of(rank, RankContents::kAll))
    for (const RankTensor& tensor : chunk) {
      bytes += tensor.num_elements * size_of(model_.find(tensor.key)->second.type);
      if (const auto states = states_.find(tensor.key); states != states_.end())
        for (const std::string& name : states->second)
          bytes += tensor.num_elements *
                   size_of(reader_.whole_tensors().tensors.find(optimizer_state_key(name, tensor.key))->second.type);
    }
  return bytes;
}

/// Returns the name in the rank's modules: layers and experts are counted on the rank.
std::string LegacyWriter::module_name(const RankTensor& tensor, const StagePart& part) const {
  if (tensor.is_shared_embedding && !part.has_embedding) return "output_layer.weight";
  std::string name = tensor.name;
  // Without Transformer Engine the norms are modules of their own.
  if (layout_.division.has_local_layers && tensor.layer)
    for (const auto& [stored, module] :
         {std::pair<std::string_view, std::string_view>{"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
          {"self_attention.linear_q_up_proj.layer_norm_", "self_attention.q_layernorm."},
          {"self_attention.linear_kv_up_proj.layer_norm_", "self_attention.kv_layernorm."},
          {"mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm."}})
      if (name.starts_with(stored)) name = std::string(module) + name.substr(stored.size());
  constexpr std::string_view kExperts = "mlp.experts.experts.";
  if (const size_t at = name.find(kExperts); tensor.expert && at != std::string::npos) {
    const std::string rest = name.substr(at + kExperts.size());
    const int64_t num_experts = model_.find(tensor.key)->second.shape[tensor.num_leading - 1];
    const int64_t expert = *tensor.expert % (num_experts / layout_.division.expert);
    name = name.substr(0, at) + (layout_.division.has_grouped_experts
                                     ? fmt::format("mlp.experts.{}{}", rest, expert)
                                     : fmt::format("mlp.experts.local_experts.{}.{}", expert, rest));
  }
  if (tensor.layer) return fmt::format("decoder.layers.{}.{}", *tensor.layer - part.first_layer, name);
  if (!tensor.key.starts_with("mtp.")) return name;
  const ModuleName further = parse_module_name(tensor.key);
  return fmt::format("mtp.layers.{}.{}", *further.layer, name);
}

/// Names of the extra states of modules with these parameters: of the linears, and of the norms of Transformer Engine.
std::vector<std::string> LegacyWriter::extra_states(const std::vector<std::string>& names) const {
  std::set<std::string> modules;
  for (const std::string& name : names) {
    const std::string module = name.substr(0, name.rfind('.'));
    const std::string_view last = std::string_view(module).substr(module.rfind('.') + 1);
    const bool is_linear = last.starts_with("linear_") || last == "eh_proj";
    const bool is_norm = last.find("layernorm") != std::string_view::npos || last == "enorm" || last == "hnorm";
    if (!name.starts_with("embedding.") && (is_linear || (is_norm && !layout_.division.has_local_layers)))
      modules.insert(module + "._extra_state");
  }
  return {modules.begin(), modules.end()};
}

Object& LegacyWriter::add_tensor(TorchObject& object, const std::string& key, const RankTensor& tensor) const {
  const GlobalTensor& whole = reader_.whole_tensors().tensors.find(key)->second;
  std::vector<Box> boxes;
  for (const RankTensor::Part& part : tensor.parts) boxes.push_back(part.whole);
  std::vector<int64_t> sizes(boxes[0].sizes.begin() + tensor.num_leading, boxes[0].sizes.end());
  if (!sizes.empty()) sizes[0] *= std::ssize(boxes);  // gate, then up
  return object.add_tensor(whole.type, Shape(std::span<const int64_t>(sizes)),
                           std::make_unique<StoredBoxSource>(reader_, key, std::move(boxes), on_bytes_));
}

Object& LegacyWriter::make_model(TorchObject& object, const std::vector<RankTensor>& tensors,
                                 const StagePart& part) const {
  Object& state = object.graph.dict();
  std::vector<std::string> names;
  for (const RankTensor& tensor : tensors) {
    names.push_back(module_name(tensor, part));
    object.graph.set(state, names.back(), add_tensor(object, tensor.key, tensor));
  }
  for (const std::string& name : extra_states(names)) object.graph.set(state, name, object.graph.none());
  if (part.has_head) object.graph.set(state, "output_layer._extra_state", object.graph.none());  // also of tied weights
  return state;
}

TorchObject LegacyWriter::model_file(const Rank& rank) const {
  CheckpointReader::CommonState common = reader_.read_common_state();
  const Object& stored = common.state();
  TorchObject object;
  object.graph = std::move(common.file.take_object().graph);
  pickle::Graph& graph = object.graph;
  Object& root = graph.dict();
  std::optional<RngPlace> place;
  for (const pickle::Entry& entry : stored.entries()) {
    const std::string& name = entry.key->as_string();
    if (name == common_state::kArgs) {
      if (!layout_.is_of_run) set_layout(graph, *entry.value, layout_);
      set_argument(*entry.value, "ckpt_format", graph.text("torch"));
      if (const Object* seed = entry.value->find("seed"); has_generators_ && seed && !seed->is_none())
        place = {.seed = seed->as_int(),
                 .iteration = stored.at(common_state::kIteration).as_int(),
                 .pp_rank = static_cast<int>(rank.stage),
                 .pp_size = static_cast<int>(layout_.division.pipeline),
                 .tp_rank = static_cast<int>(rank.tensor),
                 .tp_size = static_cast<int>(layout_.division.tensor)};
    }
    if (name == common_state::kArgs || name == common_state::kCheckpointVersion || name == common_state::kIteration ||
        name == common_state::kFlops || (optimizer_ && name == common_state::kScheduler))
      root.mutable_entries().push_back(entry);
  }
  const Chunks chunks = chunks_of(rank, RankContents::kAll);
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk)
    graph.set(root, chunks.size() == 1 ? "model" : fmt::format("model{}", chunk),
              make_model(object, chunks[chunk], layout_.part(rank.stage, static_cast<int64_t>(chunk))));
  if (optimizer_)
    graph.set(root, common_state::kOptimizer, make_optimizer(object, chunks_of(rank, RankContents::kParameters)));
  if (place) graph.set(root, "rng_state", make_rng_states(object, *place));
  object.root = &root;
  return object;
}

void LegacyWriter::write(FileSystem& files, const std::string& directory, const Rank& rank) const {
  const std::string folder = join_path(directory, folder_of(rank));
  create_durable_directories(files, folder);
  write_file(files, folder, kModel, model_file(rank));
  const bool has_buffers = form_ == OptimizerForm::kFullyReshardable || form_ == OptimizerForm::kDpReshardable;
  if (has_buffers) write_file(files, folder, kBuffers, optimizer_file(rank));
  files.sync_directory(folder);
}

TargetLayout convert_to_torch(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                              const LayoutRequest& request, Progress& progress) {
  require<NotSupported>(reader.optimizer_problem().empty(), "{}", reader.optimizer_problem());
  require_new_folder(files, save);
  reader.metadata().require_complete();
  const CheckpointReader::CommonState common = reader.read_common_state();
  const TargetLayout layout =
      target_layout(request, common.state().at(common_state::kArgs), model_tensors(reader.metadata()));
  const int64_t iteration = common.state().at(common_state::kIteration).as_int();
  int64_t total = 0, done = 0;
  const LegacyWriter writer(reader, layout, [&](int64_t bytes) { progress.update((done += bytes) / kMebibyte, ""); });
  for (const LegacyWriter::Rank& rank : writer.ranks())
    total += writer.tensor_bytes(rank);  // all are cut before any is written
  CheckpointDirectory checkpoints(files, save);
  checkpoints.begin(iteration);
  checkpoints.require_space(total);
  progress.begin({.title = "converting", .unit = "MiB", .total = total / kMebibyte});
  for (const LegacyWriter::Rank& rank : writer.ranks()) writer.write(files, checkpoints.staging_path(iteration), rank);
  progress.end();
  copy_companions(files, reader.directory(), checkpoints.staging_path(iteration));
  checkpoints.commit_legacy(iteration);
  return layout;
}

}  // namespace megatron
