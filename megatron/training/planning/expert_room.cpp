#include "megatron/training/planning/expert_room.h"

#include <fmt/core.h>

#include <array>
#include <vector>

namespace megatron {
namespace {

constexpr std::array<double, 6> kFactors = {4, 3, 2, 1.5, 1.25, 1.1};
constexpr std::array<int64_t, 5> kRounds = {1, 2, 4, 16, 64};

bool receives_tokens(const PretrainConfig& config) {
  return config.transformer.moe && config.parallel.expert_model_parallel_size > 1;
}

/// Steps that cannot be repeated need room for any routing.
bool can_repeat(const PretrainConfig& config) {
  return !config.cuda_graph.records() && config.parallel.num_distributed_optimizer_instances == 1;
}

}  // namespace

PretrainConfig with_expert_room(const PretrainConfig& config, const FitsInMemory& fits) {
  if (!receives_tokens(config) || !can_repeat(config)) return config;
  std::vector<double> factors;
  if (const std::optional<double> given = config.transformer.moe->expert_rank_capacity_factor) {
    factors.push_back(*given);
  } else {
    if (fits(config)) return config;
    for (const double factor : kFactors)  // beyond that, ranks have room for any routing
      if (factor < static_cast<double>(config.parallel.expert_model_parallel_size)) factors.push_back(factor);
  }
  for (const double factor : factors)
    for (const int64_t rounds : kRounds) {
      PretrainConfig bounded = config;
      bounded.transformer.moe->expert_rank_capacity_factor = factor;
      bounded.transformer.moe->num_exact_rounds = rounds;
      if (fits(bounded)) return bounded;
    }
  return config;
}

std::string expert_room_text(const PretrainConfig& config) {
  if (!receives_tokens(config) || !config.transformer.moe->expert_rank_capacity_factor) return {};
  const int64_t rounds = config.transformer.moe->num_exact_rounds;
  return fmt::format(
      "experts: a rank has room for {:g} times the tokens of balanced ones; a step with more is computed again, "
      "exactly{}",
      *config.transformer.moe->expert_rank_capacity_factor, rounds > 1 ? fmt::format(", in {} rounds", rounds) : "");
}

}  // namespace megatron
