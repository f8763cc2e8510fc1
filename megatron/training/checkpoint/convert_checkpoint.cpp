#include "megatron/training/checkpoint/convert_checkpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "megatron/dist_checkpointing/stored_box_source.h"
#include "megatron/training/checkpoint/checkpoint_objects.h"
#include "megatron/training/checkpoint/converted_state.h"
#include "megatron/training/checkpoint/reshard_checkpoint.h"

namespace megatron {
namespace {

constexpr int64_t kMebibyte = 1 << 20;
constexpr std::string_view kLayers = "decoder.layers.";

/// Says whether layers of this name are one tensor.
bool is_stacked(std::string_view key) {
  const size_t place = key.find(kLayers);
  return place != std::string_view::npos && !std::isdigit(static_cast<unsigned char>(key[place + kLayers.size()]));
}

}  // namespace

void convert_to_torch_dist(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                           Progress& progress) {
  require<CheckpointError>(reader.is_legacy(), "[checkpoint] {} is of the form torch_dist already.",
                           reader.directory());
  require<NotSupported>(reader.optimizer_problem().empty(), "{}", reader.optimizer_problem());
  require_new_folder(files, save);
  const CheckpointMetadata& metadata = reader.metadata();
  metadata.require_complete();
  const OptimizerForm form = optimizer_form_of(metadata);
  std::optional<StoredOptimizer> optimizer;
  if (reader.read_common_state().state().find(common_state::kOptimizer)) optimizer.emplace(reader);
  TorchObject common =
      converted_common_state(reader, optimizer ? &*optimizer : nullptr, form, optimizer ? optimizer->size() : 0, {});
  const int64_t iteration = common.root->items()[0]->at(common_state::kIteration).as_int();
  CheckpointDirectory checkpoints(files, save);
  checkpoints.begin(iteration);
  CheckpointWriter writer(files, checkpoints.staging_path(iteration), 0);
  writer.add_object(std::string(kCommonStateKey), std::move(common));
  add_extra_states(writer, parameter_places(metadata.tensors), std::max<int64_t>(num_layers_of(metadata.tensors), 1));
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
  require_new_folder(files, directory);
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
