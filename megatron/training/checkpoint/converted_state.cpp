#include "megatron/training/checkpoint/converted_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/bucketed_optimizer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/common_state.h"

namespace megatron {
namespace {

using pickle::Graph;
using pickle::Object;

/// A copy of a plain value in another graph; a tensor of one number becomes that number. Null for anything else.
Object* copy_plain(Graph& graph, const TorchFile& file, const Object& value) {
  switch (value.kind()) {
    case pickle::Kind::kNone:
      return &graph.none();
    case pickle::Kind::kBool:
      return &graph.boolean(value.as_bool());
    case pickle::Kind::kInt:
      return &graph.integer(value.as_int());
    case pickle::Kind::kFloat:
      return &graph.real(value.as_float());
    case pickle::Kind::kString:
      return &graph.text(value.as_string());
    case pickle::Kind::kList:
    case pickle::Kind::kTuple: {
      std::vector<Object*> items;
      for (const Object* item : value.items())
        if (Object* copy = copy_plain(graph, file, *item)) items.push_back(copy);
      return value.kind() == pickle::Kind::kList ? &graph.list(std::move(items)) : &graph.tuple(std::move(items));
    }
    default:
      return torch_tensor(value) ? &graph.real(stored_number(file, value)) : nullptr;
  }
}

/// The plain entries of a dict but those of these names.
Object& copy_without(Graph& graph, const TorchFile& file, const Object& dict,
                     std::initializer_list<std::string_view> left_out) {
  Object& copy = graph.dict();
  for (const pickle::Entry& entry : dict.entries()) {
    if (std::ranges::find(left_out, entry.key->as_string()) != left_out.end()) continue;
    if (Object* value = copy_plain(graph, file, *entry.value)) graph.set(copy, entry.key->as_string(), *value);
  }
  return copy;
}

void add_storages(TorchObject& object, const TorchFile& file) {
  for (size_t number = 0; file.has_storage(fmt::format("{}", number)); ++number)
    object.add_storage(make_owned_source(file.read_storage(fmt::format("{}", number))));
}

}  // namespace

std::string_view name_of(OptimizerForm form) {
  switch (form) {
    case OptimizerForm::kNone:
      return "none";
    case OptimizerForm::kReplicated:
      return "not distributed";
    case OptimizerForm::kFullyReshardable:
      return common_state::kFullyReshardable;
    case OptimizerForm::kDpReshardable:
      break;
  }
  return common_state::kDpReshardable;
}

OptimizerForm optimizer_form_of(const CheckpointMetadata& metadata) {
  OptimizerForm form = OptimizerForm::kNone;
  const std::string main_params = optimizer_state_key(optimizer_state::kDistributedMaster, "");
  for (const auto& [key, tensor] : metadata.tensors) {
    if (key.find("optimizer.distributed.") != std::string::npos) return OptimizerForm::kDpReshardable;
    if (key.starts_with(main_params)) return OptimizerForm::kFullyReshardable;
    if (key.starts_with("optimizer.")) form = OptimizerForm::kReplicated;
  }
  return form;
}

StoredOptimizer::StoredOptimizer(const CheckpointReader& reader) : common_(reader.read_common_state()) {
  if (bucketed_keys::are_in(reader.metadata())) {
    add_bucketed(reader);
    return;
  }
  const Object& stored = common_.state().at(common_state::kOptimizer);
  std::vector<const Object*> outer = {&stored};
  if (stored.kind() == pickle::Kind::kList) {
    outer.assign(stored.items().begin(), stored.items().end());
  } else if (!stored.find(common_state::kOptimizer) && !stored.find(common_state::kParamGroups)) {
    outer.clear();  // {0: ..., 1: ...}
    for (const pickle::Entry& entry : stored.entries()) outer.push_back(entry.value);
  }
  const Object* implementation = common_.state().at(common_state::kArgs).find("transformer_impl");
  const bool is_local = implementation && !implementation->is_none() && implementation->as_string() == "local";
  for (const Object* one : outer) {
    const Object* nested = one->find(common_state::kOptimizer);
    const Object& inner = nested ? *nested : *one;
    const Object* state = inner.find(common_state::kState);
    all_.push_back(
        {.file = &common_.file,
         .scaler_file = &common_.file,
         .inner = &inner,
         .scaler = one->find(common_state::kGradScaler),
         .is_nested = nested != nullptr,
         .num_steps = stored_num_steps(common_.file, inner).value_or(0),
         .has_common_step = reader.is_legacy() ? is_local : state && state->find(common_state::kCommonStep)});
  }
}

void StoredOptimizer::add_bucketed(const CheckpointReader& reader) {
  const bool is_chained = bucketed_keys::are_chained(reader.metadata());
  for (int number = 0; number < (is_chained ? 2 : 1); ++number) {
    const std::string group = bucketed_keys::group(is_chained ? number : -1, 0);
    const std::string scaler = bucketed_keys::object(group, common_state::kGradScaler);
    files_.push_back(reader.read_object(bucketed_keys::object(group, common_state::kOptimizer)));
    One& one = all_.emplace_back();
    one.file = &files_.back();
    one.inner = files_.back().root().items()[0];
    one.is_nested = true;
    one.num_steps = stored_num_steps(*one.file, *one.inner).value_or(0);
    if (!reader.has_object(scaler)) continue;
    files_.push_back(reader.read_object(scaler));
    one.scaler_file = &files_.back();
    one.scaler = files_.back().root().items()[0];
  }
}

std::vector<Object*> StoredOptimizer::make_groups(TorchObject& object, size_t number, size_t num_optimizers) const {
  Graph& graph = object.graph;
  const One& own = one(number);
  std::vector<Object*> groups;
  for (const Object* group : own.inner->at(common_state::kParamGroups).items()) {
    Object& copy = num_optimizers > 1 ? copy_without(graph, *own.file, *group, {"params", "is_expert_parallel"})
                                      : copy_without(graph, *own.file, *group, {"params"});
    if (num_optimizers > 1) graph.set(copy, "is_expert_parallel", graph.boolean(number == 1));
    if (!copy.find("step")) graph.set(copy, "step", graph.integer(own.num_steps));
    groups.push_back(&copy);
  }
  return groups;
}

Object& StoredOptimizer::make_inner(TorchObject& object, OptimizerForm form, size_t number,
                                    size_t num_optimizers) const {
  Graph& graph = object.graph;
  const One& own = one(number);
  Object& inner = graph.dict();
  if (form == OptimizerForm::kReplicated || form == OptimizerForm::kNone) {
    Object& state = graph.dict();
    const auto num_steps = static_cast<float>(own.num_steps);
    if (own.has_common_step)
      graph.set(state, common_state::kCommonStep, object.add_tensor(ConstView{&num_steps, DType::kFloat32, {}, {}}));
    graph.set(inner, common_state::kState, state);
  }
  graph.set(inner, common_state::kParamGroups, graph.list(make_groups(object, number, num_optimizers)));
  return inner;
}

StoredOptimizer::Legacy StoredOptimizer::make_legacy(TorchObject& object, size_t number, size_t num_optimizers) const {
  Graph& graph = object.graph;
  const One& own = one(number);
  Legacy made{.outer = &graph.dict(),
              .inner = nullptr,
              .groups = make_groups(object, number, num_optimizers),
              .num_steps = own.num_steps,
              .has_common_step = own.has_common_step};
  made.inner = own.is_nested ? &graph.dict() : made.outer;
  if (own.is_nested) graph.set(*made.outer, common_state::kOptimizer, *made.inner);
  graph.set(*made.inner, common_state::kParamGroups, graph.list(made.groups));
  if (own.scaler) graph.set(*made.outer, common_state::kGradScaler, make_scaler(object, own));
  return made;
}

Object& StoredOptimizer::make_scaler(TorchObject& object, const One& own) const {
  Object& copy = copy_without(object.graph, *own.scaler_file, *own.scaler, {"scale"});
  if (const Object* stored = own.scaler->find("scale")) {
    const auto scale = static_cast<float>(stored_number(*own.scaler_file, *stored));
    object.graph.set(copy, "scale", object.add_tensor(ConstView{&scale, DType::kFloat32, {1}, {1}}));
  }
  return copy;
}

Object& StoredOptimizer::make_one(TorchObject& object, OptimizerForm form, size_t number, size_t num_optimizers) const {
  Graph& graph = object.graph;
  if (form == OptimizerForm::kDpReshardable) {  // the rest is beside the buckets
    Object& named = graph.dict();
    graph.set(named, common_state::kShardingType, graph.text(common_state::kDpReshardable));
    return named;
  }
  const One& own = one(number);
  Object& inner = make_inner(object, form, number, num_optimizers);
  if (!own.is_nested) return inner;
  Object& outer = graph.dict();
  graph.set(outer, common_state::kOptimizer, inner);
  if (own.scaler) graph.set(outer, common_state::kGradScaler, make_scaler(object, own));
  if (form == OptimizerForm::kFullyReshardable)
    graph.set(outer, common_state::kShardingType, graph.text(common_state::kFullyReshardable));
  return outer;
}

Object& StoredOptimizer::make(TorchObject& object, OptimizerForm form, size_t num_optimizers) const {
  if (num_optimizers == 1) return make_one(object, form, 0, 1);
  Object& chain = object.graph.dict();
  for (size_t number = 0; number < num_optimizers; ++number)
    chain.mutable_entries().push_back(
        {&object.graph.integer(static_cast<int64_t>(number)), &make_one(object, form, number, num_optimizers)});
  return chain;
}

TorchObject StoredOptimizer::make_groups(size_t number, size_t num_optimizers) const {
  TorchObject object;
  object.root = &object.graph.list({&make_inner(object, OptimizerForm::kDpReshardable, number, num_optimizers)});
  return object;
}

std::optional<TorchObject> StoredOptimizer::make_scaler(size_t number) const {
  if (!one(number).scaler) return std::nullopt;
  TorchObject object;
  object.root = &object.graph.list({&make_scaler(object, one(number))});
  return object;
}

TorchObject converted_common_state(const CheckpointReader& reader, const StoredOptimizer* optimizer, OptimizerForm form,
                                   size_t num_optimizers,
                                   const std::function<void(Graph&, Object& arguments)>& change_arguments) {
  CheckpointReader::CommonState common = reader.read_common_state();
  const Object& stored = common.state();
  TorchObject object;
  object.graph = std::move(common.file.take_object().graph);
  if (!reader.is_legacy()) add_storages(object, common.file);
  Graph& graph = object.graph;
  Object& state = graph.dict();
  static constexpr auto kOfLegacy =  // its file holds the model too
      std::to_array<std::string_view>({common_state::kArgs, common_state::kCheckpointVersion, common_state::kIteration,
                                       common_state::kScheduler, common_state::kFlops});
  static constexpr auto kMadeAnew =
      std::to_array<std::string_view>({common_state::kOptimizer, common_state::kContentMetadata});
  for (const pickle::Entry& entry : stored.entries()) {
    const std::string& name = entry.key->as_string();
    if (name == common_state::kArgs && change_arguments) change_arguments(graph, *entry.value);
    const bool is_kept = reader.is_legacy() ? std::ranges::find(kOfLegacy, name) != kOfLegacy.end()
                                            : std::ranges::find(kMadeAnew, name) == kMadeAnew.end();
    if (is_kept) state.mutable_entries().push_back(entry);
  }
  if (optimizer) graph.set(state, common_state::kOptimizer, optimizer->make(object, form, num_optimizers));
  Object& content = graph.dict();
  if (form == OptimizerForm::kFullyReshardable || form == OptimizerForm::kDpReshardable)
    graph.set(content, common_state::kOptimizerSharding, graph.text(std::string(name_of(form))));
  graph.set(content, common_state::kSingletonShards, graph.boolean(false));
  graph.set(content, common_state::kAvoidPrefix, graph.boolean(true));
  graph.set(state, common_state::kContentMetadata, content);
  object.root = &graph.list({&state});
  return object;
}

TorchObject copy_of(TorchFile file) {
  TorchObject object;
  pickle::Pickle taken = file.take_object();
  object.root = taken.root;
  object.graph = std::move(taken.graph);
  add_storages(object, file);
  return object;
}

}  // namespace megatron
