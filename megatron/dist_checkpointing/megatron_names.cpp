#include "megatron/dist_checkpointing/megatron_names.h"

#include <fmt/core.h>

#include <array>

#include "megatron/dist_checkpointing/stored_tensors.h"

namespace megatron {

std::string rng_state_key(int pp_rank, int pp_size, int tp_rank, int tp_size) {
  return fmt::format("rng_state/shard_{}.{}_{}.{}", pp_rank, tp_rank, pp_size, tp_size);
}

std::string extra_state_key(std::string_view module, int64_t shard, int64_t num_shards) {
  return fmt::format("{}._extra_state/shard_{}_{}", module, shard, num_shards);
}

std::string expert_extra_state_key(std::string_view module, std::optional<int64_t> layer, int64_t num_layers,
                                   int64_t expert, int64_t num_experts) {
  if (!layer) return extra_state_key(module, expert, num_experts);
  return fmt::format("{}._extra_state/shard_{}.{}_{}.{}", module, *layer, expert, num_layers, num_experts);
}

std::string other_norm_key(std::string_view key) {
  struct Names {
    std::string_view one, other;
  };
  static constexpr auto kNorms = std::to_array<Names>({
      {".pre_mlp_layernorm.", ".mlp.linear_fc1.layer_norm_"},
      {".mlp.linear_fc1.layer_norm_", ".pre_mlp_layernorm."},
      {".self_attention.linear_q_up_proj.layer_norm_", ".self_attention.q_layernorm."},
      {".self_attention.linear_kv_up_proj.layer_norm_", ".self_attention.kv_layernorm."},
      {".self_attention.q_layernorm.", ".self_attention.linear_q_up_proj.layer_norm_"},
      {".self_attention.kv_layernorm.", ".self_attention.linear_kv_up_proj.layer_norm_"},
  });
  for (const Names& norm : kNorms)
    if (const size_t place = key.find(norm.one); place != std::string_view::npos)
      return fmt::format("{}{}{}", key.substr(0, place), norm.other, key.substr(place + norm.one.size()));
  return {};
}

std::string found_key(const StoredTensors& tensors, const std::string& key) {
  if (tensors.type_of(key)) return key;
  std::string other = other_norm_key(key);
  return !other.empty() && tensors.type_of(other) ? other : key;
}

std::string optimizer_state_key(std::string_view state, std::string_view parameter_key) {
  return fmt::format("optimizer.state.{}.{}", state, parameter_key);
}

}  // namespace megatron
