#include "megatron/training/checkpoint/common_state.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "megatron/dist_checkpointing/bucketed_optimizer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/optimizer/param_scheduler_entries.h"
#include "megatron/training/checkpoint/bucketed_share.h"

namespace megatron {
namespace {

using pickle::Graph;
using pickle::Object;

Object& from_json(Graph& graph, const nlohmann::ordered_json& value) {
  if (value.is_boolean()) return graph.boolean(value.get<bool>());
  if (value.is_number_integer()) return graph.integer(value.get<int64_t>());
  if (value.is_number()) return graph.real(value.get<double>());
  if (value.is_string()) return graph.text(value.get<std::string>());
  if (!value.is_array()) return graph.none();
  std::vector<Object*> items;
  for (const auto& item : value) items.push_back(&from_json(graph, item));
  return graph.list(std::move(items));
}

/// Arguments of other programs hold enumerators and functions too: nothing for these.
bool write_json(const Object& object, nlohmann::ordered_json& value) {
  switch (object.kind()) {
    case pickle::Kind::kNone:
      value = nullptr;
      return true;
    case pickle::Kind::kBool:
      value = object.as_bool();
      return true;
    case pickle::Kind::kInt:
      value = object.as_int();
      return true;
    case pickle::Kind::kFloat:
      value = object.as_float();
      return true;
    case pickle::Kind::kString:
      value = object.as_string();
      return true;
    case pickle::Kind::kList:
    case pickle::Kind::kTuple: {
      value = nlohmann::ordered_json::array();
      for (const Object* item : object.items()) {
        nlohmann::ordered_json element;
        if (!write_json(*item, element)) return false;
        value.push_back(std::move(element));
      }
      return true;
    }
    default:
      return false;
  }
}

Object& make_arguments(Graph& graph, const PretrainConfig& config, const TrainingProgress& progress) {
  Object& attributes = graph.dict();
  const auto arguments = nlohmann::ordered_json::parse(arguments_to_json(config));
  for (const auto& [name, value] : arguments.items()) graph.set(attributes, name, from_json(graph, value));
  graph.set(attributes, "iteration", graph.integer(progress.iteration));
  graph.set(attributes, "consumed_train_samples", graph.integer(progress.consumed_train_samples));
  graph.set(attributes, "skipped_train_samples", graph.integer(progress.skipped_train_samples));
  graph.set(attributes, "consumed_valid_samples", graph.integer(progress.consumed_valid_samples));
  graph.set(attributes, "padded_vocab_size", graph.integer(config.transformer.padded_vocab_size));
  return graph.instance(graph.global("argparse", "Namespace"), &attributes);
}

void set_progress(Graph& graph, Object& state, const PretrainConfig& config, const TrainingProgress& progress) {
  graph.set(state, common_state::kArgs, make_arguments(graph, config, progress));
  graph.set(state, common_state::kCheckpointVersion, graph.real(common_state::kVersion));
  graph.set(state, common_state::kIteration, graph.integer(progress.iteration));
}

/// @param content  what is stored of the optimizer's state.
void set_content(Graph& graph, Object& state, const TrainingProgress& progress, Object& content) {
  graph.set(state, common_state::kFlops, graph.real(progress.num_floating_point_operations));
  graph.set(content, common_state::kSingletonShards, graph.boolean(false));
  graph.set(content, common_state::kAvoidPrefix, graph.boolean(true));
  graph.set(state, common_state::kContentMetadata, content);
}

/// The groups of the whole model, which a pipeline stage may have a part of. Every model has weights that decay, norms
/// that do not, and an embedding, the one kind with a rate of its own.
std::vector<ParamGroupSchedule> schedules_of_model(const OptimizerConfig& config) {
  std::vector<ParamGroupSchedule> schedules(2);
  schedules[1].wd_mult = 0;
  if (config.decoupled_lr) schedules.push_back({.max_lr = config.decoupled_lr, .min_lr = config.decoupled_min_lr});
  return schedules;
}

Object& make_group(Graph& graph, Trainer& trainer, const ParamGroupSchedule& schedule, bool of_experts) {
  const OptimizerConfig& config = trainer.optimizer().config();
  const ParamScheduler& scheduler = trainer.scheduler();
  Object& dict = graph.dict();
  const bool is_decoupled = schedule.max_lr.has_value();
  graph.set(dict, "is_expert_parallel", graph.boolean(of_experts));
  graph.set(dict, "default_config", graph.boolean(!is_decoupled));
  graph.set(dict, "wd_mult", graph.real(schedule.wd_mult));
  graph.set(dict, "lr_mult", graph.real(1.0));
  graph.set(dict, "is_decoupled_lr", graph.boolean(is_decoupled));
  graph.set(dict, "max_lr", graph.real(schedule.max_lr.value_or(scheduler.state().max_lr)));
  graph.set(dict, "min_lr", graph.real(schedule.min_lr.value_or(scheduler.state().min_lr)));
  graph.set(dict, "lr", graph.real(scheduler.lr(schedule)));
  graph.set(dict, "weight_decay", graph.real(scheduler.weight_decay(schedule)));
  if (config.optimizer == OptimizerType::kAdam) {
    graph.set(dict, "betas", graph.tuple({&graph.real(config.adam_beta1), &graph.real(config.adam_beta2)}));
    graph.set(dict, "eps", graph.real(config.adam_eps));
    graph.set(dict, "bias_correction", graph.boolean(true));         // read by the fused Adam
    graph.set(dict, "decoupled_weight_decay", graph.boolean(true));  // read by torch's AdamW
  } else {
    graph.set(dict, "momentum", graph.real(config.sgd_momentum));
  }
  graph.set(dict, "step", graph.integer(trainer.optimizer().num_steps()));
  return dict;
}

/// The state of a dynamic scale; a constant one has none.
Object& make_scaler(TorchObject& object, const GradScaler& scaler) {
  Graph& graph = object.graph;
  Object& dict = graph.dict();
  if (const auto* dynamic = dynamic_cast<const DynamicGradScaler*>(&scaler)) {
    const DynamicGradScaler::State& state = dynamic->state();
    graph.set(dict, "scale", object.add_tensor(ConstView{&state.scale, DType::kFloat32, {1}, {1}}));
    graph.set(dict, "growth_tracker", graph.integer(state.growth_tracker));
    graph.set(dict, "hysteresis_tracker", graph.integer(state.hysteresis_tracker));
  }
  return dict;
}

/// The state that Megatron's optimizers keep for all parameters together. Its fused Adam has the number of steps in
/// each group. torch's AdamW, which Megatron takes without Transformer Engine and Apex, wants it for each parameter.
Object& make_inner_optimizer(TorchObject& object, Trainer& trainer, bool of_experts) {
  Graph& graph = object.graph;
  std::vector<Object*> groups;
  for (const ParamGroupSchedule& schedule : schedules_of_model(trainer.optimizer().config()))
    groups.push_back(&make_group(graph, trainer, schedule, of_experts));
  Object& inner = graph.dict();
  if (!trainer.config().optimizer.use_distributed_optimizer) {
    Object& state = graph.dict();
    if (trainer.config().no_effect.transformer_impl == "local") {
      const auto num_steps = static_cast<float>(trainer.optimizer().num_steps());
      graph.set(state, common_state::kCommonStep, object.add_tensor(ConstView{&num_steps, DType::kFloat32, {}, {}}));
    }
    graph.set(inner, common_state::kState, state);
  }
  graph.set(inner, common_state::kParamGroups, graph.list(std::move(groups)));
  return inner;
}

/// Says that the state is in buckets; the rest is in the objects beside them. @param num_optimizers  in the chain
Object& make_forms(Graph& graph, int64_t num_optimizers) {
  const auto form = [&]() -> Object& {
    Object& dict = graph.dict();
    graph.set(dict, common_state::kShardingType, graph.text(common_state::kDpReshardable));
    return dict;
  };
  if (num_optimizers == 1) return form();
  Object& chain = graph.dict();
  for (int64_t number = 0; number < num_optimizers; ++number)
    chain.mutable_entries().push_back({&graph.integer(number), &form()});
  return chain;
}

/// The form in which Megatron's optimizers store it: DistributedOptimizer in the form that any layout loads,
/// Float16OptimizerWithFloat16Params, or FP32Optimizer, which has no dict around the inner one.
Object& make_optimizer(TorchObject& object, Trainer& trainer) {
  Graph& graph = object.graph;
  if (trainer.config().checkpoint.dist_ckpt_optim_form == common_state::kDpReshardable)
    return make_forms(graph, division_of(trainer).divides_experts() ? 2 : 1);
  Object& inner = make_inner_optimizer(object, trainer, false);
  const OptimizerConfig& config = trainer.config().optimizer;
  if (!config.use_distributed_optimizer && size_of(config.params_dtype) > size_of(DType::kBFloat16)) return inner;
  Object& outer = graph.dict();
  graph.set(outer, common_state::kOptimizer, inner);
  if (const GradScaler* scaler = trainer.optimizer().scaler())
    graph.set(outer, common_state::kGradScaler, make_scaler(object, *scaler));
  if (config.use_distributed_optimizer)
    graph.set(outer, common_state::kShardingType, graph.text(common_state::kFullyReshardable));
  return outer;
}

Object& make_scheduler(Graph& graph, const ParamScheduler& scheduler) {
  Object& dict = graph.dict();
  for (const auto& [name, value] : to_entries(scheduler.state())) {
    if (const auto* whole = std::get_if<int64_t>(&value))
      graph.set(dict, name, graph.integer(*whole));
    else if (const auto* real = std::get_if<double>(&value))
      graph.set(dict, name, graph.real(*real));
    else
      graph.set(dict, name, graph.text(std::get<std::string>(value)));
  }
  return dict;
}

int64_t count_of(const Object& arguments, std::string_view name, int64_t otherwise) {
  const Object* value = arguments.find(name);
  return value && !value->is_none() ? value->as_int() : otherwise;
}

ParamSchedulerEntries scheduler_entries(const Object& dict) {
  ParamSchedulerEntries entries;
  for (const pickle::Entry& entry : dict.entries()) {
    const std::string& name = entry.key->as_string();
    if (entry.value->kind() == pickle::Kind::kInt)
      entries[name] = entry.value->as_int();
    else if (entry.value->kind() == pickle::Kind::kFloat)
      entries[name] = entry.value->as_float();
    else if (entry.value->kind() == pickle::Kind::kString)
      entries[name] = entry.value->as_string();
  }
  return entries;
}

/// The optimizer's state, or the first one of a chain {0: ..., 1: ...}: Megatron chains an optimizer of dense
/// parameters and one of experts that ranks share, which take their steps together.
const Object& first_of_chain(const Object& stored) {
  if (stored.kind() == pickle::Kind::kList) return *stored.items()[0];  // of the form torch
  const bool is_one = stored.find(common_state::kOptimizer) || stored.find(common_state::kParamGroups) ||
                      stored.find(common_state::kShardingType) || stored.entries().empty();
  return is_one ? stored : *stored.entries()[0].value;
}

}  // namespace

double stored_number(const TorchFile& file, const Object& object) {
  const std::optional<TorchTensor> tensor = torch_tensor(object);
  if (!tensor) return object.as_float();
  require<CheckpointError>(tensor->type == ElementType::kFloat32 && tensor->shape.num_elements() == 1,
                           "[checkpoint] {}: one float32 is wanted, {} {} is stored.", file.source(),
                           info(tensor->type).torch, tensor->shape);
  float value = 0;
  std::memcpy(&value, file.read(*tensor).data(), sizeof(value));
  return value;
}

/// Adam's t: in each group, or once for all parameters, or in the form torch for each parameter.
std::optional<int64_t> stored_num_steps(const TorchFile& file, const Object& optimizer) {
  for (const Object* group : optimizer.at(common_state::kParamGroups).items())
    if (const Object* step = group->find("step")) return static_cast<int64_t>(stored_number(file, *step));
  const Object* state = optimizer.find(common_state::kState);
  const Object* step = state ? state->find(common_state::kCommonStep) : nullptr;
  if (!step && state && !state->entries().empty()) step = state->entries()[0].value->find("step");
  if (!step) return std::nullopt;
  return static_cast<int64_t>(stored_number(file, *step));
}

TorchObject make_common_state(Trainer& trainer, bool with_optimizer) {
  TorchObject object;
  Graph& graph = object.graph;
  Object& state = graph.dict();
  set_progress(graph, state, trainer.config(), trainer.progress());
  if (with_optimizer) {
    graph.set(state, common_state::kOptimizer, make_optimizer(object, trainer));
    graph.set(state, common_state::kScheduler, make_scheduler(graph, trainer.scheduler()));
  }
  Object& content = graph.dict();
  if (trainer.config().optimizer.use_distributed_optimizer) {
    const CheckpointConfig& config = trainer.config().checkpoint;
    graph.set(content, common_state::kOptimizerSharding, graph.text(config.dist_ckpt_optim_form));
    if (config.dist_ckpt_optim_form == common_state::kFullyReshardable)
      graph.set(content, common_state::kMemoryEfficient,
                graph.boolean(config.distrib_optim_fully_reshardable_mem_efficient));
  }
  set_content(graph, state, trainer.progress(), content);
  object.root = &graph.list({&state});
  return object;
}

TorchObject make_inner_optimizer_object(Trainer& trainer, bool of_experts) {
  TorchObject object;
  Object& inner = make_inner_optimizer(object, trainer, of_experts);
  object.root = &object.graph.list({&inner});
  return object;
}

TorchObject make_scaler_object(Trainer& trainer) {
  TorchObject object;
  Object& scaler = make_scaler(object, *trainer.optimizer().scaler());
  object.root = &object.graph.list({&scaler});
  return object;
}

TorchObject make_initial_state(const PretrainConfig& config) {
  TorchObject object;
  Graph& graph = object.graph;
  Object& state = graph.dict();
  set_progress(graph, state, config, {});
  set_content(graph, state, {}, graph.dict());
  object.root = &graph.list({&state});
  return object;
}

void require_same_model(const Object& state, const TransformerConfig& config) {
  const Object& arguments = state.at(common_state::kArgs);
  const auto require_equal = [&](std::string_view name, std::string_view flag, int64_t given) {
    const int64_t stored = count_of(arguments, name, given);
    require<CheckpointError>(
        stored == given,
        "[checkpoint] {} is {}, but the checkpoint's model has {}. Give {} {}, or leave {} out and take "
        "the model's flags from the checkpoint with --use-checkpoint-args.",
        flag, given, stored, flag, stored, flag);
  };
  require_equal("num_layers", "--num-layers", config.num_layers);
  require_equal("hidden_size", "--hidden-size", config.hidden_size);
  require_equal("num_attention_heads", "--num-attention-heads", config.num_attention_heads);
}

void load_progress(const Object& state, Trainer& trainer) {
  const Object& arguments = state.at(common_state::kArgs);
  TrainingProgress& progress = trainer.progress();
  progress.iteration = state.at(common_state::kIteration).as_int();
  const int64_t batch = trainer.config().training.global_batch_size.value();
  progress.consumed_train_samples = count_of(arguments, "consumed_train_samples", progress.iteration * batch);
  progress.skipped_train_samples = count_of(arguments, "skipped_train_samples", 0);
  progress.consumed_valid_samples = count_of(arguments, "consumed_valid_samples", 0);
  if (const Object* operations = state.find(common_state::kFlops))
    progress.num_floating_point_operations = operations->as_float();
}

void load_optimizer_state(const CheckpointReader& reader, const CheckpointReader::CommonState& common,
                          Trainer& trainer) {
  const Object& state = common.state();
  const Object& outer = first_of_chain(state.at(common_state::kOptimizer));
  const Object* sharding = outer.find(common_state::kShardingType);
  const bool is_bucketed = bucketed_keys::are_in(reader.metadata());
  require<CheckpointError>(
      !sharding || is_bucketed || sharding->as_string() == common_state::kFullyReshardable,
      "[checkpoint] {}: the optimizer's state is stored as '{}', which is unsupported. Save it with "
      "Megatron's --dist-ckpt-optim-fully-reshardable, or load the weights alone with "
      "--no-load-optim.",
      common.file.source(), sharding ? sharding->as_string() : "");
  trainer.scheduler().load(param_scheduler_state_of(scheduler_entries(state.at(common_state::kScheduler))));
  std::optional<TorchFile> file, scaler_file;  // of objects of their own
  const std::string group = bucketed_keys::group(bucketed_keys::are_chained(reader.metadata()) ? 0 : -1, 0);
  const std::string scaler_key = bucketed_keys::object(group, common_state::kGradScaler);
  if (is_bucketed) file.emplace(reader.read_object(bucketed_keys::object(group, common_state::kOptimizer)));
  if (is_bucketed && reader.has_object(scaler_key)) scaler_file.emplace(reader.read_object(scaler_key));
  const Object* inner = file ? file->root().items()[0] : outer.find(common_state::kOptimizer);
  const std::optional<int64_t> num_steps =  // FP32Optimizer has no dict around the inner one
      stored_num_steps(file ? *file : common.file, inner ? *inner : outer);
  require<CheckpointError>(num_steps || trainer.optimizer().config().optimizer != OptimizerType::kAdam,
                           "[checkpoint] {}: Adam's number of steps is not stored. Was another optimizer saved?",
                           common.file.source());
  trainer.optimizer().set_num_steps(num_steps.value_or(0));
  auto* scaler = dynamic_cast<DynamicGradScaler*>(trainer.optimizer().scaler());
  const Object* stored = scaler_file ? scaler_file->root().items()[0] : outer.find(common_state::kGradScaler);
  if (scaler && stored && stored->find("growth_tracker"))
    scaler->load(
        {.scale = static_cast<float>(stored_number(scaler_file ? *scaler_file : common.file, stored->at("scale"))),
         .growth_tracker = stored->at("growth_tracker").as_int(),
         .hysteresis_tracker = stored->at("hysteresis_tracker").as_int()});
}

std::string arguments_json_of(const Object& state) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  const Object& arguments = state.at(common_state::kArgs);
  require<CheckpointError>(arguments.is_instance() && arguments.instance().state,
                           "[checkpoint] 'args' is not an argparse.Namespace.");
  for (const pickle::Entry& entry : arguments.instance().state->entries()) {
    nlohmann::ordered_json value;
    if (write_json(*entry.value, value)) json[entry.key->as_string()] = std::move(value);
  }
  return json.dump();
}

}  // namespace megatron
