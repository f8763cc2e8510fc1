#include "megatron/training/checkpoint/checkpointer.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/bucketed_share.h"
#include "megatron/training/checkpoint/checkpoint_layout.h"
#include "megatron/training/checkpoint/checkpoint_load.h"
#include "megatron/training/checkpoint/checkpoint_objects.h"
#include "megatron/training/checkpoint/checkpoint_share.h"
#include "megatron/training/checkpoint/checkpoint_source.h"
#include "megatron/training/checkpoint/common_state.h"
#include "megatron/training/checkpoint/load_requests.h"
#include "megatron/training/checkpoint/local_state.h"
#include "megatron/training/checkpoint/main_param_check.h"
#include "megatron/training/checkpoint/non_persistent.h"
#include "megatron/training/checkpoint/optimizer_tensors.h"
#include "megatron/training/checkpoint/save_as_torch.h"
#include "megatron/training/checkpoint/save_folder.h"
#include "megatron/training/checkpoint/upcycled_weights.h"
#include "megatron/training/config/arguments_json.h"
#include "megatron/training/hugging_face/hugging_face_model.h"

namespace megatron {
namespace {

void add_state(CheckpointShare& share, Trainer& trainer, bool with_optimizer) {
  const int64_t num_layers = trainer.model().config().num_layers;
  if (trainer.groups().world.rank() == 0)
    share.writer().add_object(std::string(kCommonStateKey), make_common_state(trainer, with_optimizer));
  for (const Parameter* parameter : trainer.model().parameters()) {
    const CheckpointPlacement placement = placement_of(*parameter, num_layers);
    share.add_replicated(*parameter, placement, placement.key, stored_as_is("", parameter->value()));
  }
  if (!with_optimizer) return;
  Optimizer& optimizer = trainer.optimizer();
  std::optional<BucketedShare> buckets;
  if (trainer.config().checkpoint.dist_ckpt_optim_form == common_state::kDpReshardable) buckets.emplace(share, trainer);
  for (const OptimizerState& state : optimizer.states()) {
    const CheckpointPlacement placement = placement_of(*state.parameter, {state.begin, state.end}, num_layers);
    const bool shards = optimizer.config().use_distributed_optimizer;
    std::vector<OptimizerTensor> all = optimizer_tensors(trainer.context(), optimizer, state);
    // If the weights themselves are stepped, a run reads no more than them. But Megatron Core's DistributedOptimizer
    // stores them again, and runs that keep fp32 main parameters look for such.
    if (state.rounds_weights() || (shards && state.steps_weights())) {
      const DType dtype = state.rounds_weights() ? DType::kFloat32 : state.main.dtype();
      all.push_back({optimizer_state::kMaster,
                     dtype,
                     [ctx = trainer.context(), &optimizer, state] { return optimizer.main_params(ctx, state); },
                     {}});
    }
    for (const OptimizerTensor& named : all) {
      const bool is_main = shards && named.name == optimizer_state::kMaster;
      const std::string_view name = is_main ? optimizer_state::kDistributedMaster : named.name;
      if (buckets)
        buckets->add(state, name, named);
      else if (shards)
        share.add_sharded(placement, optimizer_state_key(name, placement.key), named);
      else
        share.add_replicated(*state.parameter, placement, optimizer_state_key(name, placement.key), named);
    }
  }
  if (buckets) buckets->finish(trainer);
}

}  // namespace

Checkpointer::Checkpointer(FileSystem& files, const PretrainConfig& config, MessageLog log,
                           std::optional<TokenizerRecord> tokenizer, std::function<void()> require_ownership)
    : files_(files),
      config_(config),
      log_(std::move(log)),
      tokenizer_(std::move(tokenizer)),
      saver_(files_, config_.checkpoint, log_, require_ownership) {
  if (config_.checkpoint.is_local()) local_.emplace(files_, config_.checkpoint, log_, std::move(require_ownership));
}

CheckpointSaver::Fill Checkpointer::share_of(Trainer& trainer) const {
  return [this, &trainer](CheckpointWriter& writer) {
    CheckpointShare share(writer, trainer.context(), trainer.groups(), config_.checkpoint.ckpt_fully_parallel_save);
    add_state(share, trainer, !config_.checkpoint.no_save_optim);
    if (!config_.checkpoint.ckpt_drop_redundant_extra_state) add_extra_states(writer, trainer);
    if (!config_.checkpoint.no_save_rng) add_rng_state(writer, trainer);
  };
}

SaveTarget Checkpointer::target_of(const std::string& root, const Retention& retention, Trainer& trainer) {
  SaveTarget target{.root = root, .retention = retention, .add_files = [this](const std::string& directory) {
                      const bool with_files = config_.checkpoint.save_tokenizer_assets;
                      if (tokenizer_) save_tokenizer(files_, directory, *tokenizer_, with_files);
                      keep_hugging_face_files(files_, directory, hugging_face_files_);
                    }};
  if (config_.checkpoint.ckpt_format == "torch")
    target.write_as_torch = [this, &trainer](const std::string& directory) {
      write_folder_of_rank(files_, directory, trainer);
    };
  return target;
}

std::vector<SavedCheckpoint> Checkpointer::save(Trainer& trainer) {
  const int64_t iteration = trainer.progress().iteration;
  auto committed =
      saver_.save(iteration,
                  target_of(config_.checkpoint.save.value(),
                            {.retain_interval = config_.checkpoint.save_retain_interval.value_or(0)}, trainer),
                  trainer.groups().world, trainer.device(), share_of(trainer));
  last_saved_iteration_ = iteration;
  return committed;
}

std::vector<SavedCheckpoint> Checkpointer::save_non_persistent(Trainer& trainer) {
  if (local_) return {local_->save(trainer)};
  const std::string folder = non_persistent_folder(config_.checkpoint, config_.checkpoint.save.value());
  return saver_.save(trainer.progress().iteration, target_of(folder, Retention::newest_alone(), trainer),
                     trainer.groups().world, trainer.device(), share_of(trainer));
}

std::optional<SavedCheckpoint> Checkpointer::finish_save(const ProcessGroup& world, Wait wait) {
  return saver_.finish(world, wait);
}

void Checkpointer::reserve_staging(Trainer& trainer, int64_t available) {
  saver_.reserve_staging(trainer.device(), share_of(trainer), available);
}

int64_t Checkpointer::iteration_to_load(FileSystem& files, const CheckpointConfig& config) {
  if (config.finetune) return 0;
  const CheckpointDirectory::Found found = find_in_load(files, config, {});
  if (found.path.empty()) return 0;
  return config.override_ckpt_iteration.value_or(found.iteration.value_or(0));
}

bool Checkpointer::load(Trainer& trainer) {
  const CheckpointConfig& config = config_.checkpoint;
  if (trainer.groups().world.rank() == 0)
    if (const auto warning = warning_of_another_run(files_, config)) log_.warning(*warning);
  if (!config.loads()) return false;
  const Source source = find_source(trainer);
  const CheckpointDirectory::Found& found = source.found;
  if (found.path.empty() && config.load_hf) return load_hugging_face(trainer);
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
  if (config_.experts.use_upcycling) hugging_face_files_.clear();  // of the dense model
  if (config_.experts.use_upcycling) return upcycle(reader, found.path, trainer);
  const CheckpointReader::CommonState common = reader.read_common_state();
  require_own_iteration(found, common.state());
  const bool takes_state = !source.is_finetune && found.iteration.has_value();
  if (!source.is_finetune) require_same_model(common.state(), trainer.model().config());
  if (!source.is_finetune)
    require_same_tokenizer(files_, found.path, arguments_json_of(common.state()), tokenizer_, config_, log_);
  const std::vector<std::string> others = other_meanings(config_, arguments_json_of(common.state()));
  if (!others.empty())
    log_.warning(fmt::format("the checkpoint is of another model: {}. --use-checkpoint-args takes what is there",
                             joined(others, "; ")));
  const bool with_optimizer = takes_state && takes_optimizer(common.state());
  if (source.is_local)
    LocalState(trainer).read_from(reader);
  else
    read_tensors(reader, with_optimizer, trainer);
  if (takes_state) take_progress(common.state(), trainer);
  if (with_optimizer) load_optimizer_state(reader, common, trainer);
  log_.info(fmt::format("  successfully loaded checkpoint from {} at iteration {}", found.path,
                        trainer.progress().iteration));
  return true;
}

Checkpointer::Source Checkpointer::find_source(Trainer& trainer) {
  const CheckpointConfig& config = config_.checkpoint;
  const ProcessGroup& world = trainer.groups().world;
  Source source{.found = find_in_load(files_, config, log_), .is_finetune = config.finetune, .is_local = false};
  if (takes_local()) {
    require_same_on_all_ranks(world, files_, source.found);
    if (const auto local = local_->newest(trainer, source.found)) {
      read_hugging_face_files(source.found.path);
      return {*local, false, true};
    }
  }
  if (source.found.path.empty() && config.pretrained_checkpoint) {
    const std::string& pretrained = *config.pretrained_checkpoint;
    source.found = find_checkpoint(files_, "--pretrained-checkpoint", pretrained, config.ckpt_step, log_);
    require<CheckpointError>(!source.found.path.empty(),
                             "[checkpoint] --pretrained-checkpoint {}: no checkpoint is there. Correct the path, or "
                             "leave the flag out to start from initial weights.",
                             pretrained);
    source.is_finetune = true;
  }
  if (config.verify_integrity && !source.found.path.empty() && world.rank() == 0)
    require_integrity(files_, source.found.path);
  require_same_on_all_ranks(world, files_, source.found);
  read_hugging_face_files(source.found.path);
  return source;
}

void Checkpointer::read_hugging_face_files(const std::string& checkpoint) {
  const std::string folder =
      checkpoint.empty() ? config_.checkpoint.load_hf.value_or("") : join_path(checkpoint, kHuggingFaceFolder);
  if (!folder.empty()) hugging_face_files_ = read_small_files(files_, folder, hugging_face_config_files());
}

bool Checkpointer::upcycle(const CheckpointReader& dense, const std::string& path, Trainer& trainer) const {
  const Context& ctx = trainer.context();
  const int64_t granularity = config_.experts.upcycling_granularity;
  const UpcycledWeights weights(dense, trainer.model().config(), granularity);
  LoadRequests requests = requests_of_model(weights, trainer.model(), WeightSource::kModel);
  std::erase_if(requests, [](const LoadRequest& request) { return is_of_router(*request.parameter); });
  read(weights, requests, ctx);
  repeat_router_rows(ctx, trainer.model(), granularity);
  trainer.optimizer().reload_main_params(ctx);
  log_.info(fmt::format("  successfully made experts of the dense model in {}", path));
  return true;
}

bool Checkpointer::load_hugging_face(Trainer& trainer) const {
  const std::string& folder = *config_.checkpoint.load_hf;
  const HuggingFaceModel model = read_hugging_face_model(files_, folder);
  const HuggingFaceWeights weights(files_, model, weight_map_of(model.family, model.config()));
  const LoadRequests requests = requests_of_model(weights, trainer.model(), WeightSource::kModel);
  const Context& ctx = trainer.context();
  if (config_.checkpoint.ckpt_fully_parallel_load && trainer.groups().dp_cp.size() > 1)
    read_shared(weights, requests, ctx, trainer.groups());
  else
    read(weights, requests, ctx);
  trainer.optimizer().reload_main_params(ctx);
  log_.info(fmt::format("  successfully loaded the {} of {}", model.family.model_type, folder));
  return true;
}

void Checkpointer::read_tensors(const CheckpointReader& reader, bool with_optimizer, Trainer& trainer) const {
  const StrictHandling handling = config_.checkpoint.dist_ckpt_strictness;
  const bool takes_main_params = with_optimizer || config_.checkpoint.load_main_params_from_ckpt;
  LoadRequests weights =
      requests_of_model(reader, trainer.model(), takes_main_params ? WeightSource::kMainParams : WeightSource::kModel);
  LoadRequests states;
  if (with_optimizer)
    states = requests_of_optimizer(reader, trainer);
  else if (takes_main_params)
    states = requests_of_main_params(reader, trainer);
  const ProcessGroup& world = trainer.groups().world;
  require_matching_keys(reader, {weights, states}, handling, world, world.rank() == 0 ? log_ : MessageLog{});
  if (leaves_out_unexpected(handling)) {
    leave_out_unexpected(reader, weights);
    leave_out_unexpected(reader, states);
  }
  require_optimizer_state(reader, states);
  const Context& ctx = trainer.context();
  const bool shares = config_.checkpoint.ckpt_fully_parallel_load && trainer.groups().dp_cp.size() > 1;
  if (shares)
    read_shared(reader, weights, ctx, trainer.groups());
  else
    read(reader, weights, ctx);
  if (with_optimizer && bucketed_keys::are_in(reader.metadata())) require_main_params_of_weights(reader, trainer);
  trainer.optimizer().reload_main_params(ctx);  // those that the checkpoint does not hold
  if (!takes_main_params) return;
  if (shares && !trainer.optimizer().config().use_distributed_optimizer)
    read_shared(reader, states, ctx, trainer.groups());
  else
    read(reader, states, ctx);
  trainer.optimizer().copy_main_to_model_params(ctx);
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

bool Checkpointer::takes_local() const {
  const CheckpointConfig& config = config_.checkpoint;
  return local_ && config.load && !config.ckpt_step && !config.finetune && !config.no_load_optim &&
         !config_.experts.use_upcycling;
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
  if (config.load_hf) return hugging_face_arguments(files, *config.load_hf);
  return arguments_json_of(open_existing(files, config).read_common_state().state());
}

std::string Checkpointer::stored_path(FileSystem& files, const CheckpointConfig& config) {
  return find_existing(files, config).path;
}

void Checkpointer::load_model(FileSystem& files, const CheckpointConfig& config, const Context& ctx, Model& model) {
  if (config.load_hf) {
    const HuggingFaceModel described = read_hugging_face_model(files, *config.load_hf);
    const HuggingFaceWeights weights(files, described, weight_map_of(described.family, described.config()));
    return read(weights, requests_of_model(weights, model, WeightSource::kModel), ctx);
  }
  const CheckpointReader reader = open_existing(files, config);
  read(reader, requests_of_model(reader, model, WeightSource::kModel), ctx);
}

}  // namespace megatron
