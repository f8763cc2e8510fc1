#include "megatron/training/checkpoint/reshard_checkpoint.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/bucketed_optimizer.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/checkpoint_objects.h"
#include "megatron/training/checkpoint/checkpoint_tokenizer.h"
#include "megatron/training/checkpoint/target_ranks.h"
#include "megatron/training/hugging_face/hugging_face_model.h"

namespace megatron {
namespace {

using pickle::Object;

constexpr int64_t kMebibyte = 1 << 20;

OptimizerForm target_form(const CheckpointReader& reader, const std::optional<OptimizerForm>& wanted) {
  const OptimizerForm stored = optimizer_form_of(reader.metadata());
  if (!wanted) return stored;
  require<NotSupported>(
      stored == OptimizerForm::kFullyReshardable || stored == OptimizerForm::kDpReshardable,
      "[checkpoint] --dist-ckpt-optim-form {}: the state of the optimizer in {} is: {}. Only that of a "
      "distributed optimizer has two forms; leave the flag out.",
      name_of(*wanted), reader.directory(), name_of(stored));
  return *wanted;
}

const Object& stored_arguments(const CheckpointReader& reader, const CheckpointReader::CommonState& common) {
  const Object* arguments = common.state().find(common_state::kArgs);
  require<CheckpointError>(arguments && arguments->is_instance(),
                           "[checkpoint] {} has no arguments of its run, which say how its model is divided.",
                           reader.directory());
  return *arguments;
}

/// The generators of each tensor and pipeline rank: those that are stored, where the layout is the same.
void add_generators(TargetRanks& ranks, const TargetLayout& layout, const CheckpointReader& reader,
                    const Object& arguments, int64_t iteration) {
  const auto& objects = reader.metadata().objects;
  const auto stored = objects.lower_bound("rng_state/");
  const bool has_some = stored != objects.end() && stored->first.starts_with("rng_state/");
  const Object* seed = arguments.find("seed");
  if ((!has_some && !reader.is_legacy()) || !seed || seed->is_none()) return;
  const auto num_stages = static_cast<int>(layout.division.pipeline),
             num_ranks = static_cast<int>(layout.division.tensor);
  for (int stage = 0; stage < num_stages; ++stage)
    for (int rank = 0; rank < num_ranks; ++rank) {
      CheckpointWriter& writer = ranks.writer(stage * layout.ranks_of_stage() + rank);
      const std::string key = rng_state_key(stage, num_stages, rank, num_ranks);
      if (reader.has_object(key))
        writer.add_object(key, copy_of(reader.read_object(key)));
      else
        add_rng_state(writer, {.seed = seed->as_int(),
                               .iteration = iteration,
                               .pp_rank = stage,
                               .pp_size = num_stages,
                               .tp_rank = rank,
                               .tp_size = num_ranks});
    }
}

/// The states of Transformer Engine's modules, which do not depend on the layout.
void add_extra_states(CheckpointWriter& writer, const CheckpointReader& reader, const TargetRanks::Model& model,
                      int64_t num_layers) {
  if (reader.is_legacy()) return add_extra_states(writer, parameter_places(model), num_layers);
  for (const auto& [key, item] : reader.metadata().objects)
    if (key.find("._extra_state/") != std::string::npos) writer.add_object(key, copy_of(reader.read_object(key)));
}

void add_buckets(TargetRanks& ranks, const StoredOptimizer& optimizer, size_t num_optimizers, const Object& arguments) {
  ranks.add_buckets(arguments);
  for (const TargetRanks::Group& group : ranks.groups()) {
    CheckpointWriter& writer = ranks.writer(group.rank);
    writer.add_object(bucketed_keys::object(group.key, common_state::kOptimizer),
                      optimizer.make_groups(group.optimizer, num_optimizers));
    if (auto scaler = optimizer.make_scaler(group.optimizer))
      writer.add_object(bucketed_keys::object(group.key, common_state::kGradScaler), std::move(*scaler));
  }
}

void copy_files(FileSystem& files, const std::string& from, const std::string& to) {
  for (const DirectoryEntry& entry : files.list(from)) {
    if (entry.type != EntryType::kFile) continue;
    files.create_directories(to);
    write_synced(files, join_path(to, entry.name), read_file(files, join_path(from, entry.name)));
  }
  if (files.exists(to)) files.sync_directory(to);
}

}  // namespace

void copy_companions(FileSystem& files, const std::string& from, const std::string& to) {
  std::vector<std::string> names = stored_tokenizer_names();
  names.emplace_back(kHuggingFaceFolder);
  for (const std::string& name : names) {
    const std::string path = join_path(from, name);
    if (!files.exists(path)) continue;
    const auto entries = files.list(from);
    const bool is_folder = std::ranges::any_of(entries, [&](const DirectoryEntry& entry) {
      return entry.name == name && entry.type == EntryType::kDirectory;
    });
    if (is_folder)
      copy_files(files, path, join_path(to, name));
    else
      write_synced(files, join_path(to, name), read_file(files, path));
  }
}

void require_new_folder(const FileSystem& files, const std::string& directory) {
  require<CheckpointError>(!files.exists(directory) || files.list(directory).empty(),
                           "[checkpoint] --save {} holds files already, which a conversion does not replace. Give a "
                           "new folder.",
                           directory);
}

TargetLayout reshard_checkpoint(FileSystem& files, const CheckpointReader& reader, const std::string& save,
                                const ReshardOptions& options, Progress& progress) {
  require<NotSupported>(reader.optimizer_problem().empty(), "{}", reader.optimizer_problem());
  require_new_folder(files, save);
  reader.metadata().require_complete();
  require<CheckpointError>(reader.has_common_state(),
                           "[checkpoint] {} has no common state: it is no checkpoint of a run.", reader.directory());
  const CheckpointReader::CommonState common = reader.read_common_state();
  const Object& arguments = stored_arguments(reader, common);
  const TargetRanks::Model model = model_tensors(reader.metadata());
  const TargetLayout layout = target_layout(options.layout, arguments, model);
  const OptimizerForm form = target_form(reader, options.optimizer_form);
  std::optional<StoredOptimizer> optimizer;  // one without states has groups
  if (common.state().find(common_state::kOptimizer)) optimizer.emplace(reader);
  const bool is_distributed = form == OptimizerForm::kFullyReshardable || form == OptimizerForm::kDpReshardable;
  const bool is_chained =
      is_distributed ? layout.has_experts && layout.division.divides_experts() : optimizer && optimizer->size() > 1;
  const size_t num_optimizers = is_chained ? 2 : 1;

  const int64_t iteration = common.state().at(common_state::kIteration).as_int();
  CheckpointDirectory checkpoints(files, save);
  const std::string staging = checkpoints.staging_path(iteration);
  const Integrity integrity =
      files.exists(join_path(reader.directory(), kIntegrityFile)) ? Integrity::kSha256 : Integrity::kNone;
  int64_t done = 0;
  TargetRanks ranks(files, staging, integrity, reader, layout,
                    [&](int64_t bytes) { progress.update((done += bytes) / kMebibyte, ""); });
  ranks.writer(0).add_object(
      std::string(kCommonStateKey),
      converted_common_state(reader, optimizer ? &*optimizer : nullptr, form, num_optimizers,
                             [&](pickle::Graph& graph, Object& stored) {
                               set_layout(graph, stored, layout);
                               set_argument(stored, "ckpt_format", graph.text("torch_dist"));
                               if (!is_distributed) return;
                               set_argument(stored, "dist_ckpt_optim_form", graph.text(std::string(name_of(form))));
                               set_argument(stored, "dist_ckpt_optim_fully_reshardable",
                                            graph.boolean(form == OptimizerForm::kFullyReshardable));
                             }));
  add_generators(ranks, layout, reader, arguments, iteration);
  add_extra_states(ranks.writer(0), reader, model, layout.num_layers);
  ranks.add_whole_tensors(form != OptimizerForm::kDpReshardable);
  if (form == OptimizerForm::kDpReshardable) add_buckets(ranks, *optimizer, num_optimizers, arguments);
  checkpoints.begin(iteration);  // nothing is written before all of it has a place
  checkpoints.require_space(ranks.estimated_bytes());
  copy_companions(files, reader.directory(), staging);
  progress.begin({.title = "resharding", .unit = "MiB", .total = ranks.tensor_bytes() / kMebibyte});
  FileHashes hashes;
  const CheckpointMetadata written = ranks.write(hashes);
  progress.end();
  checkpoints.commit(iteration, written, integrity, hashes);
  return layout;
}

}  // namespace megatron
