#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/base/word_list.h"

#include <fmt/core.h>

#include <array>

namespace megatron {
namespace {

std::string shard_of_row(std::string_view key, int64_t place, int64_t size) {
  return object_shard_key(key, std::array{place}, std::array{size});
}

std::string optimizer_group(const OptimizerBucket& bucket) {
  const std::string chained = bucket.chained_optimizer < 0 ? "" : fmt::format("chained_{}.", bucket.chained_optimizer);
  return fmt::format("{}optimizer.distributed.dp_group_idx_{}", chained, bucket.dp_group);
}

}  // namespace

std::string object_shard_key(std::string_view key, std::span<const int64_t> place, std::span<const int64_t> grid) {
  return fmt::format("{}/shard_{}_{}", key, joined(place, "."), joined(grid, "."));
}

std::string rng_state_key(int64_t pipeline_rank, int64_t pipeline_size, int64_t tensor_rank, int64_t tensor_size) {
  return object_shard_key("rng_state", std::array{pipeline_rank, tensor_rank}, std::array{pipeline_size, tensor_size});
}

std::string rerun_state_key(int64_t rank, int64_t world_size) {
  return shard_of_row("rerun_state_machine_state", rank, world_size);
}

std::string extra_state_key(std::string_view module, int64_t layer, int64_t num_layers) {
  return shard_of_row(fmt::format("{}._extra_state", stacked_layer_key(module)), layer, num_layers);
}

std::string stacked_layer_key(std::string_view name) { return fmt::format("decoder.layers.{}", name); }

std::string layer_key(int64_t layer, std::string_view name) { return fmt::format("decoder.layers.{}.{}", layer, name); }

std::string optimizer_state_key(std::string_view state, std::string_view parameter_key) {
  return fmt::format("optimizer.state.{}.{}", state, parameter_key);
}

std::string optimizer_bucket_key(const OptimizerBucket& bucket, std::string_view state) {
  return fmt::format("{}.gbuf_idx_{}.dtype_(torch.{}, torch.{}).bucket_idx_{}.{}", optimizer_group(bucket),
                     bucket.buffer, bucket.parameter_dtype, bucket.gradient_dtype, bucket.bucket, state);
}

std::string optimizer_group_key(const OptimizerBucket& bucket, std::string_view object) {
  return shard_of_row(fmt::format("{}.{}", optimizer_group(bucket), object), 0, 1);
}

}  // namespace megatron
