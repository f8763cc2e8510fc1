#include "megatron/training/checkpoint/checkpoint_objects.h"

#include <cctype>
#include <set>

#include "megatron/dist_checkpointing/generator_states.h"
#include "megatron/dist_checkpointing/megatron_names.h"

namespace megatron {
namespace {

using pickle::Graph;
using pickle::Object;

// Megatron's seeds: training/initialize.py, core/tensor_parallel/random.py.
constexpr uint64_t kSeedsPerStage = 100;
constexpr uint64_t kModelParallelSeed = 2718, kExpertParallelSeed = 1024;
/// A power of two above what the kernels of an iteration draw, so that iterations have ranges of their own.
constexpr int kBitsPerIteration = 32;

Object& make_rng_state(TorchObject& object, uint64_t seed, uint64_t tp_rank, uint64_t iteration) {
  Graph& graph = object.graph;
  const auto word = static_cast<uint32_t>(seed);
  const auto cuda = [&](uint64_t own_seed) -> Object& {
    return torch_cuda_generator_state(object, own_seed, iteration << kBitsPerIteration);
  };
  Object& tracker = graph.dict();
  graph.set(tracker, rng_state::kDataParallel, cuda(seed));
  graph.set(tracker, rng_state::kModelParallel, cuda(seed + kModelParallelSeed + tp_rank));
  graph.set(tracker, rng_state::kExpertParallel, cuda(seed + kExpertParallelSeed + tp_rank));
  Object& state = graph.dict();
  graph.set(state, rng_state::kPython, python_generator_state(graph, word));
  graph.set(state, rng_state::kNumpy, numpy_generator_state(graph, word));
  graph.set(state, rng_state::kTorch, torch_cpu_generator_state(object, seed));
  graph.set(state, rng_state::kCuda, cuda(seed));
  graph.set(state, rng_state::kTracker, tracker);
  return graph.list({&state});
}

/// "decoder.layers.mlp.linear_fc1" of the key of its weight.
std::string module_of(const std::string& key) { return key.substr(0, key.rfind('.')); }

/// Megatron's own modules have none: embedding, output layer, router, and the gate of shared experts.
bool has_extra_state(const StoredName& stored) {
  const std::string module = module_of(stored.key);
  return (stored.key.starts_with("decoder.") || stored.key.starts_with("mtp.")) && !module.ends_with(".router") &&
         !module.ends_with(".shared_experts");
}

/// Says whether layers of this name are one tensor.
bool is_stacked(std::string_view key) {
  constexpr std::string_view kLayers = "decoder.layers.";
  const size_t place = key.find(kLayers);
  return place != std::string_view::npos && !std::isdigit(static_cast<unsigned char>(key[place + kLayers.size()]));
}

/// Each expert has its own.
bool is_of_experts(const StoredName& stored) { return stored.key.find(".experts.experts.") != std::string::npos; }

std::string extra_state_key_of(const StoredName& stored, int64_t num_layers) {
  return extra_state_key(module_of(stored.key), stored.layer.value_or(0), stored.layer ? num_layers : 1);
}

void write_extra_states(CheckpointWriter& writer, const std::set<std::string>& keys) {
  for (const std::string& key : keys) {
    TorchObject object;
    object.root = &object.graph.list({&object.graph.none()});
    writer.add_object(key, std::move(object));
  }
}

}  // namespace

void add_rng_state(CheckpointWriter& writer, Trainer& trainer) {
  const ProcessGroupCollection& groups = trainer.groups();
  if (groups.dp_cp.rank() != 0) return;
  add_rng_state(writer, {.seed = trainer.config().training.seed,
                         .iteration = trainer.progress().iteration,
                         .pp_rank = groups.pp.rank(),
                         .pp_size = groups.pp.size(),
                         .tp_rank = groups.tp.rank(),
                         .tp_size = groups.tp.size()});
}

pickle::Object& make_rng_states(TorchObject& object, const RngPlace& place) {
  const uint64_t seed = static_cast<uint64_t>(place.seed) + kSeedsPerStage * static_cast<uint64_t>(place.pp_rank);
  return make_rng_state(object, seed, static_cast<uint64_t>(place.tp_rank), static_cast<uint64_t>(place.iteration));
}

void add_rng_state(CheckpointWriter& writer, const RngPlace& place) {
  TorchObject object;
  object.root = &object.graph.list({&make_rng_states(object, place)});
  writer.add_object(rng_state_key(place.pp_rank, place.pp_size, place.tp_rank, place.tp_size), std::move(object));
}

void add_extra_states(CheckpointWriter& writer, Trainer& trainer) {
  const ProcessGroupCollection& groups = trainer.groups();
  const bool stores_dense = groups.dp_cp.rank() == 0 && groups.tp.rank() == 0;
  const bool stores_experts = groups.expt_dp.rank() == 0 && groups.expt_tp.rank() == 0;
  const int64_t num_layers = trainer.model().config().num_layers;
  std::set<std::string> keys;
  for (const Parameter* parameter : trainer.model().parameters()) {
    const StoredName& stored = parameter->options().stored;
    if (!is_of_experts(stored)) {
      if (stores_dense && has_extra_state(stored)) keys.insert(extra_state_key_of(stored, num_layers));
      continue;
    }
    const int64_t num_experts = parameter->options().shard.global_shape[0];
    for (const ShardBox& box : parameter->boxes())
      for (int64_t expert = 0; stores_experts && expert < box.global.sizes[0]; ++expert)
        keys.insert(expert_extra_state_key(module_of(stored.key), stored.layer, num_layers,
                                           box.global.offsets[0] + expert, num_experts));
  }
  write_extra_states(writer, keys);
}

void add_extra_states(CheckpointWriter& writer, std::span<const ParameterPlace> parameters, int64_t num_layers) {
  std::set<std::string> keys;
  for (const auto& [name, expert, num_experts] : parameters)
    if (expert)
      keys.insert(expert_extra_state_key(module_of(name.key), name.layer, num_layers, *expert, num_experts));
    else if (has_extra_state(name))
      keys.insert(extra_state_key_of(name, num_layers));
  write_extra_states(writer, keys);
}

std::vector<ParameterPlace> parameter_places(const std::map<std::string, GlobalTensor, std::less<>>& model) {
  std::vector<ParameterPlace> places;
  for (const auto& [key, tensor] : model) {
    if (!key.starts_with("decoder.") && !key.starts_with("mtp.")) continue;
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

}  // namespace megatron
