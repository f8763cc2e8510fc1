#include "megatron/dist_checkpointing/megatron_names.h"

#include <fmt/core.h>

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

std::string local_expert_norm_key(std::string_view key) {
  constexpr std::string_view kNorm = ".pre_mlp_layernorm.";
  const size_t place = key.find(kNorm);
  if (place == std::string_view::npos) return {};
  return fmt::format("{}.mlp.linear_fc1.layer_norm_{}", key.substr(0, place), key.substr(place + kNorm.size()));
}

std::string optimizer_state_key(std::string_view state, std::string_view parameter_key) {
  return fmt::format("optimizer.state.{}.{}", state, parameter_key);
}

}  // namespace megatron
