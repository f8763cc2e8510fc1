#include "megatron/dist_checkpointing/megatron_names.h"

#include <fmt/core.h>

namespace megatron {

std::string rng_state_key(int pp_rank, int pp_size, int tp_rank, int tp_size) {
  return fmt::format("rng_state/shard_{}.{}_{}.{}", pp_rank, tp_rank, pp_size, tp_size);
}

std::string extra_state_key(std::string_view module, int64_t shard, int64_t num_shards) {
  return fmt::format("{}._extra_state/shard_{}_{}", module, shard, num_shards);
}

std::string optimizer_state_key(std::string_view state, std::string_view parameter_key) {
  return fmt::format("optimizer.state.{}.{}", state, parameter_key);
}

}  // namespace megatron
