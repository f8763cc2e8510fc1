#include "megatron/training/checkpointer.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>

#include "megatron/base/file_fingerprint.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/core/copy.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/metadata_pickle.h"
#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/training/checkpoint_layout.h"
#include "megatron/training/common_state.h"
#include "megatron/training/config/arguments_json.h"
#include "megatron/training/device_tensor_source.h"
#include "megatron/training/save_folder.h"

namespace megatron {
namespace {

/// A tensor of the optimizer with its name in Megatron's files.
struct NamedState {
  const char* name;
  DType dtype;
  std::function<Tensor()> tensor;               // what is stored
  std::function<void(const Tensor&)> put_back;  // takes it again where tensor() is a copy; else empty
};
NamedState as_it_is(const char* name, const Tensor& tensor) {
  return {name, tensor.dtype(), [tensor] { return tensor; }, {}};
}

/// @param state  one of the optimizer's.
std::vector<NamedState> named_states(const Context& ctx, Optimizer& optimizer, const OptimizerState& state) {
  std::vector<NamedState> named;
  const auto add = [&](const char* name, const Tensor& tensor) {
    if (tensor.defined()) named.push_back(as_it_is(name, tensor));
  };
  if (state.remainder.defined())
    named.push_back({optimizer_state::kMaster, DType::kFloat32,
                     [ctx, &optimizer, state] { return optimizer.main_params(ctx, state); },
                     [ctx, &optimizer, state](const Tensor& x) { optimizer.set_main_params(ctx, state, x); }});
  else if (!state.steps_weights())
    add(optimizer_state::kMaster, state.main);
  const bool is_adam = optimizer.config().optimizer == OptimizerType::kAdam;
  add(is_adam ? optimizer_state::kFirstMoment : optimizer_state::kMomentum, state.exp_avg);
  add(optimizer_state::kSecondMoment, state.exp_avg_sq);
  return named;
}

/// One rank's share of a checkpoint.
class ShareWriter {
 public:
  ShareWriter(FileSystem& files, std::string directory, const Context& ctx, const ProcessGroupCollection& groups)
      : ctx_(ctx),
        writer_(files, std::move(directory), groups.world.rank()),
        dealer_(groups.dp_cp),
        is_first_instance_(groups.inter_dist_opt.rank() == 0) {}

  /// What all data-parallel ranks hold alike.
  void add_replicated(const CheckpointPlacement& placement, const std::string& key, const NamedState& value) {
    for (const CheckpointChunk& chunk : placement.chunks)
      if (!chunk.is_copy && dealer_.takes(chunk.sizes.num_elements() * size_of(value.dtype)))
        add(placement, key, chunk, value);
  }
  /// What this rank alone holds of its optimizer instance.
  void add_sharded(const CheckpointPlacement& placement, const std::string& key, const NamedState& value) {
    for (const CheckpointChunk& chunk : placement.chunks)
      if (!chunk.is_copy && is_first_instance_) add(placement, key, chunk, value);
  }
  CheckpointWriter& writer() { return writer_; }

 private:
  void add(const CheckpointPlacement& placement, const std::string& key, const CheckpointChunk& chunk,
           const NamedState& value) {
    writer_.add_tensor(key, element_type_of(value.dtype), placement.global_shape, {chunk.offsets, chunk.sizes},
                       make_device_source(ctx_, value.tensor, value.dtype, chunk));
  }

  Context ctx_;
  CheckpointWriter writer_;
  ReplicaDealer dealer_;
  bool is_first_instance_;
};

void add_state(ShareWriter& share, Trainer& trainer, bool with_optimizer) {
  const int64_t num_layers = trainer.model().config().num_layers;
  if (trainer.groups().world.rank() == 0)
    share.writer().add_object(std::string(kCommonStateKey), make_common_state(trainer, with_optimizer));
  for (const Parameter* parameter : trainer.model().parameters()) {
    const CheckpointPlacement placement = placement_of(*parameter, num_layers, trainer.groups());
    share.add_replicated(placement, placement.key, as_it_is("", parameter->value()));
  }
  if (!with_optimizer) return;
  Optimizer& optimizer = trainer.optimizer();
  for (const OptimizerState& state : optimizer.states()) {
    const CheckpointPlacement placement =
        placement_of(*state.parameter, {state.begin, state.end}, num_layers, trainer.groups());
    const bool shards = optimizer.config().use_distributed_optimizer;
    std::vector<NamedState> all = named_states(trainer.context(), optimizer, state);
    // Where the weights themselves are stepped a run reads no more than them. But Megatron Core's DistributedOptimizer
    // stores them again, and runs that keep fp32 main parameters look for such.
    if (state.rounds_weights() || (shards && state.steps_weights())) {
      const DType dtype = state.rounds_weights() ? DType::kFloat32 : state.main.dtype();
      all.push_back({optimizer_state::kMaster,
                     dtype,
                     [ctx = trainer.context(), &optimizer, state] { return optimizer.main_params(ctx, state); },
                     {}});
    }
    for (const NamedState& named : all)
      if (!shards)
        share.add_replicated(placement, optimizer_state_key(named.name, placement.key), named);
      else if (named.name == optimizer_state::kMaster)
        share.add_sharded(placement, optimizer_state_key(optimizer_state::kDistributedMaster, placement.key), named);
      else
        share.add_sharded(placement, optimizer_state_key(named.name, placement.key), named);
  }
}

int64_t sum_of_ranks(const ProcessGroup& world, int64_t value) {
  world.all_reduce({&value, DType::kInt64, {1}, {1}}, ReduceOp::kSum, {.site = "checkpoint size"}).wait();
  return value;
}

/// What all ranks have stored, on rank 0; nothing elsewhere.
CheckpointMetadata merged_on_first(const ProcessGroup& world, const CheckpointMetadata& own) {
  const std::string text = world.rank() == 0 ? "" : write_metadata(own);
  auto bytes = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(static_cast<size_t>(world.size()));
  world
      .all_gather({&bytes, DType::kInt64, {1}, {1}},
                  {sizes.data(), DType::kInt64, {static_cast<int64_t>(world.size())}, {1}},
                  {.site = "checkpoint index size"})
      .wait();
  if (world.rank() > 0) {
    world.send({text.data(), DType::kUInt8, {bytes}, {1}}, 0, 0, {.site = "checkpoint index"}).wait();
    return {};
  }
  CheckpointMetadata merged = own;
  for (int rank = 1; rank < world.size(); ++rank) {
    std::vector<std::byte> received(static_cast<size_t>(sizes[static_cast<size_t>(rank)]));
    world
        .recv({received.data(), DType::kUInt8, {static_cast<int64_t>(received.size())}, {1}}, rank, 0,
              {.site = "checkpoint index"})
        .wait();
    merged.merge(parse_metadata(received, fmt::format("index of rank {}", rank)));
  }
  return merged;
}

void read_as_stored(const CheckpointReader& reader, const CheckpointPlacement& placement, const std::string& key,
                    const Context& ctx, Tensor& tensor) {
  std::vector<std::byte> host(static_cast<size_t>(tensor.bytes()));
  for (const CheckpointChunk& chunk : placement.chunks) {
    const View destination{host.data() + chunk.first * size_of(tensor.dtype()), tensor.dtype(), chunk.sizes,
                           chunk.strides};
    if (placement.is_padded)
      reader.read_resized_tensor(key, chunk.offsets, destination);
    else
      reader.read_tensor(key, placement.global_shape, chunk.offsets, destination);
  }
  copy_from_host(ctx.device, host, tensor.view().data);
}

/// Converts where the run has another precision than the checkpoint.
void read(const CheckpointReader& reader, const CheckpointPlacement& placement, const std::string& key,
          const Context& ctx, Tensor& tensor) {
  const auto stored = reader.metadata().tensors.find(key);
  const DType dtype = stored == reader.metadata().tensors.end()
                          ? tensor.dtype()
                          : info(stored->second.type).dtype.value_or(tensor.dtype());
  if (dtype == tensor.dtype()) return read_as_stored(reader, placement, key, ctx, tensor);
  Tensor staged = ctx.empty("checkpoint.staged", tensor.shape(), dtype, MemoryUse::kWorkspace);
  read_as_stored(reader, placement, key, ctx, staged);
  launch(ctx, {.name = "copy"},
         [&](auto& stream) { kernels::copy(stream, {.x = std::as_const(staged).view(), .y = tensor.view()}); });
}

void read_model(const CheckpointReader& reader, const Context& ctx, GptModel& model) {
  for (Parameter* parameter : model.parameters()) {
    const CheckpointPlacement placement = placement_of(*parameter, model.config().num_layers, {});
    read(reader, placement, placement.key, ctx, parameter->value());
  }
}

void read_optimizer(const CheckpointReader& reader, Trainer& trainer) {
  Optimizer& optimizer = trainer.optimizer();
  for (const OptimizerState& state : optimizer.states()) {
    const CheckpointPlacement placement =
        placement_of(*state.parameter, {state.begin, state.end}, trainer.model().config().num_layers, {});
    for (const NamedState& named : named_states(trainer.context(), optimizer, state)) {
      std::string key = optimizer_state_key(named.name, placement.key);
      if (named.name == optimizer_state::kMaster && !reader.has_tensor(key))  // of a distributed optimizer
        key = optimizer_state_key(optimizer_state::kDistributedMaster, placement.key);
      require<CheckpointError>(reader.has_tensor(key),
                               "[checkpoint] there is no {}: the optimizer's state was saved with another --optimizer "
                               "or precision. Give the same ones, or take the weights alone with --no-load-optim.",
                               key);
      Tensor tensor = named.tensor();
      read(reader, placement, key, trainer.context(), tensor);
      if (named.put_back) named.put_back(tensor);
    }
  }
}

/// What is to be loaded from the directory of `flag`; no path if it is empty.
CheckpointDirectory::Found find(FileSystem& files, std::string_view flag, const std::string& directory,
                                const std::optional<int64_t>& step, const MessageLog& log) {
  try {
    const CheckpointDirectory checkpoints(files, directory);
    if (checkpoints.is_empty()) return {};
    if (step) return checkpoints.find(*step);
    const CheckpointDirectory::Latest latest = checkpoints.latest();
    for (const std::string& warning : latest.warnings) log.warning(warning);
    return latest.found.value_or(CheckpointDirectory::Found{});
  } catch (const IoError& error) {
    throw CheckpointError(fmt::format("[checkpoint] {} {} cannot be read: {}. Give a folder that --save has written.",
                                      flag, directory, error.what()));
  }
}

/// What tells one checkpoint from another: its index, and the weights in the first file of data.
std::string describe_content(const FileSystem& files, const CheckpointDirectory::Found& found) {
  if (found.path.empty()) return "none";
  return fmt::format("{} (index of {}, first weights of {})",
                     found.iteration ? fmt::format("iteration {}", *found.iteration) : "a release",
                     file_fingerprint(files, join_path(found.path, kMetadataFile)),
                     file_fingerprint(files, join_path(found.path, data_file_name(0, 0))));
}

/// Each rank looks for itself, so a --load that is not the same on all hosts would train a mixture of states.
void require_same_on_all_ranks(const ProcessGroup& world, const FileSystem& files,
                               const CheckpointDirectory::Found& found) {
  const std::vector<std::string> all = gather_texts(world, describe_content(files, found), "checkpoint found");
  require<CheckpointError>(std::ranges::count(all, all.front()) == std::ssize(all),
                           "[checkpoint] ranks find different checkpoints: {}. Give all of them one --load on a file "
                           "system that every host sees.",
                           describe_values(all));
}

/// A folder that was renamed by hand would continue another iteration than the one that was asked for.
void require_own_iteration(const CheckpointDirectory::Found& found, const pickle::Object& state) {
  const pickle::Object* stored = state.find(common_state::kIteration);
  if (!stored || !found.iteration) return;
  require<CheckpointError>(stored->as_int() == *found.iteration,
                           "[checkpoint] {} holds iteration {}. Rename the folder, and choose it with --ckpt-step {}.",
                           found.path, stored->as_int(), stored->as_int());
}

CheckpointDirectory::Found find_existing(FileSystem& files, const CheckpointConfig& config) {
  require<CheckpointError>(config.load.has_value(), "[checkpoint] --load is missing: the directory of checkpoints.");
  const CheckpointDirectory::Found found = find(files, "--load", *config.load, config.ckpt_step, {});
  require<CheckpointError>(!found.path.empty(), "[checkpoint] --load {}: no checkpoint is there. Correct the path.",
                           *config.load);
  return found;
}

CheckpointReader open_existing(FileSystem& files, const CheckpointConfig& config) {
  const CheckpointDirectory::Found found = find_existing(files, config);
  CheckpointReader reader(files, found.path, Verify::kChecksums);
  require_own_iteration(found, reader.read_common_state().state());
  return reader;
}

}  // namespace

Checkpointer::Checkpointer(FileSystem& files, const PretrainConfig& config, MessageLog log,
                           std::optional<TokenizerRecord> tokenizer)
    : files_(files), config_(config), log_(std::move(log)), tokenizer_(std::move(tokenizer)) {}

std::vector<int64_t> Checkpointer::save(Trainer& trainer) {
  const int64_t iteration = trainer.progress().iteration;
  const ProcessGroupCollection& groups = trainer.groups();
  const bool is_first = groups.world.rank() == 0;
  const std::string& root = config_.checkpoint.save.value();
  CheckpointDirectory directory(files_, root);
  if (is_first)
    for (const std::string& line : directory.begin(iteration)) log_.info(line);
  groups.world.barrier({.site = "checkpoint directory"}).wait();
  ShareWriter share(files_, directory.staging_path(iteration), trainer.context(), groups);
  add_state(share, trainer, !config_.checkpoint.no_save_optim);
  const int64_t bytes = sum_of_ranks(groups.world, share.writer().estimated_bytes());
  if (is_first) directory.require_space(bytes);
  const CheckpointMetadata metadata = merged_on_first(groups.world, share.writer().write(1));
  const Retention retention{.retain_interval = config_.checkpoint.save_retain_interval.value_or(0)};
  if (is_first) {
    if (tokenizer_)
      save_tokenizer(files_, directory.staging_path(iteration), *tokenizer_, config_.checkpoint.save_tokenizer_assets);
    directory.mark_for_removal(retention);
    directory.commit(iteration, metadata, Integrity::kNone);
  }
  groups.world.barrier({.site = "checkpoint commit"}).wait();
  last_saved_iteration_ = iteration;
  log_.info(fmt::format("  successfully saved checkpoint from iteration {:7d} to {}", iteration, root));
  if (!is_first) return {};
  std::vector<int64_t> removed = directory.prune(retention);
  for (const int64_t other : removed)
    log_.info(fmt::format("  successfully deleted checkpoint from iteration {:7d} at {}", other, root));
  return removed;
}

bool Checkpointer::load(Trainer& trainer) {
  const CheckpointConfig& config = config_.checkpoint;
  if (trainer.groups().world.rank() == 0)
    if (const auto warning = warning_of_another_run(files_, config)) log_.warning(*warning);
  if (!config.load && !config.pretrained_checkpoint) return false;
  bool is_finetune = config.finetune;
  CheckpointDirectory::Found found;
  if (config.load) found = find(files_, "--load", *config.load, config.ckpt_step, log_);
  if (found.path.empty() && config.pretrained_checkpoint) {
    const std::string& pretrained = *config.pretrained_checkpoint;
    found = find(files_, "--pretrained-checkpoint", pretrained, config.ckpt_step, log_);
    require<CheckpointError>(!found.path.empty(),
                             "[checkpoint] --pretrained-checkpoint {}: no checkpoint is there. Correct the path, or "
                             "leave the flag out to start from initial weights.",
                             pretrained);
    is_finetune = true;
  }
  require_same_on_all_ranks(trainer.groups().world, files_, found);
  if (found.path.empty()) {
    const char* must_exist = config.exit_on_missing_checkpoint ? "--exit-on-missing-checkpoint"
                             : config.ckpt_step                ? "--ckpt-step"
                                                               : nullptr;
    require<CheckpointError>(!must_exist,
                             "[checkpoint] --load {}: no checkpoint is there. Correct the path, or leave {} out to "
                             "start from initial weights.",
                             *config.load, must_exist);
    log_.warning(fmt::format("--load {}: no checkpoint is there; training starts from initial weights", *config.load));
    return false;
  }
  const CheckpointReader reader(files_, found.path, Verify::kChecksums);
  const CheckpointReader::CommonState common = reader.read_common_state();
  require_own_iteration(found, common.state());
  const bool takes_state = !is_finetune && found.iteration.has_value();
  if (!is_finetune) require_same_model(common.state(), trainer.model().config());
  if (!is_finetune)
    require_same_tokenizer(files_, found.path, arguments_json_of(common.state()), tokenizer_, config_, log_);
  const std::vector<std::string> others = other_meanings(config_, arguments_json_of(common.state()));
  if (!others.empty())
    log_.warning(fmt::format("the checkpoint is of another model: {}. --use-checkpoint-args takes what is there",
                             joined(others, "; ")));
  read_model(reader, trainer.context(), trainer.model());
  if (takes_state) take_progress(common.state(), trainer);
  if (takes_state && takes_optimizer(common.state())) {
    load_optimizer_state(common, trainer);
    read_optimizer(reader, trainer);
    trainer.optimizer().copy_main_to_model_params(trainer.context());
  } else {
    trainer.optimizer().reload_main_params(trainer.context());
  }
  log_.info(fmt::format("  successfully loaded checkpoint from {} at iteration {}", found.path,
                        trainer.progress().iteration));
  return true;
}

void Checkpointer::take_progress(const pickle::Object& state, Trainer& trainer) const {
  load_progress(state, trainer);
  if (const auto others = other_sample_order(config_, arguments_json_of(state)); !others.empty())
    log_.warning(
        fmt::format("the checkpoint's run took its samples in another order (--dataloader-type cyclic): {}. "
                    "Some samples of this pass come again, others not at all. Go on with the values there to go "
                    "through all of them once",
                    joined(others, "; ")));
  if (!config_.checkpoint.override_ckpt_iteration) return;
  TrainingProgress& progress = trainer.progress();
  progress.iteration = *config_.checkpoint.override_ckpt_iteration;
  progress.consumed_train_samples = progress.iteration * config_.training.global_batch_size.value();
  progress.skipped_train_samples = 0;
}

bool Checkpointer::takes_optimizer(const pickle::Object& state) const {
  if (config_.checkpoint.no_load_optim) return false;
  if (state.find(common_state::kOptimizer)) return true;
  log_.warning(
      "the checkpoint holds no optimizer state (--no-save-optim): the optimizer and its schedule start from "
      "the beginning");
  return false;
}

std::string Checkpointer::stored_arguments(FileSystem& files, const CheckpointConfig& config) {
  return arguments_json_of(open_existing(files, config).read_common_state().state());
}

std::string Checkpointer::stored_path(FileSystem& files, const CheckpointConfig& config) {
  return find_existing(files, config).path;
}

void Checkpointer::load_model(FileSystem& files, const CheckpointConfig& config, const Context& ctx, GptModel& model) {
  read_model(open_existing(files, config), ctx, model);
}

}  // namespace megatron
