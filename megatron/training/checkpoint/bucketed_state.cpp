#include "megatron/training/checkpoint/bucketed_state.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "megatron/core/copy.h"
#include "megatron/dist_checkpointing/megatron_names.h"

namespace megatron {
namespace {

constexpr int64_t kAlignment = 64;  // elements
constexpr std::string_view kRoot = "optimizer.distributed.dp_group_idx_";
constexpr std::string_view kRemedy =
    "Load the weights alone with --no-load-optim, or save with Megatron's --dist-ckpt-optim-fully-reshardable, which "
    "any "
    "layout loads.";

std::string group_prefix(int64_t rank) { return fmt::format("{}{}.", kRoot, rank); }

int64_t size_in(const pickle::Object& arguments, std::string_view name) {
  const pickle::Object* value = arguments.find(name);
  return value && !value->is_none() ? value->as_int() : 1;
}

/// Modules of a layer as Megatron registers them; its attention core comes before the projections.
int64_t place_of(std::string_view name, bool has_fused_norms) {
  static constexpr auto kModules = std::to_array<std::string_view>(
      {".input_layernorm.", ".core_attention.", ".linear_proj.", ".linear_qkv.", ".linear_q_proj.",
       ".linear_q_down_proj.", ".linear_q_up_proj.", ".linear_kv_down_proj.", ".linear_kv_up_proj.", ".q_layernorm.",
       ".k_layernorm.", ".kv_layernorm.", ".pre_mlp_layernorm.", ".linear_fc1.", ".linear_fc2."});
  for (size_t i = 0; i < kModules.size(); ++i)
    if (name.find(kModules[i]) != std::string_view::npos) {
      const bool is_in_linear_qkv = i == 0 && has_fused_norms;  // Transformer Engine's linear_qkv.layer_norm_weight
      return is_in_linear_qkv ? 5 : static_cast<int64_t>(2 * i);
    }
  return 2 * static_cast<int64_t>(kModules.size());
}

/// In Megatron's order. Ours is the same up to modules of a layer.
std::vector<const Parameter*> registered(Trainer& trainer, bool has_fused_norms) {
  struct Entry {
    std::tuple<int, int64_t, int64_t> place;  // part of the model, layer, module
    const Parameter* parameter;
  };
  std::vector<Entry> entries;
  for (const Parameter* parameter : trainer.model().parameters()) {
    const std::string& name = parameter->name();
    const std::optional<int64_t>& layer = parameter->options().stored.layer;
    if (name.starts_with("embedding."))
      entries.push_back({{0, 0, 0}, parameter});
    else if (layer)
      entries.push_back({{1, *layer, place_of(name, has_fused_norms)}, parameter});
    else
      entries.push_back({{name.starts_with("decoder.") ? 2 : 3, 0, 0}, parameter});
  }
  std::ranges::stable_sort(entries, {}, &Entry::place);
  std::vector<const Parameter*> parameters;
  parameters.reserve(entries.size());
  for (const Entry& entry : entries) parameters.push_back(entry.parameter);
  return parameters;
}

/// The sizes of the first buffer: [[{(parameters' dtype, gradients' dtype): [sizes]}]].
std::vector<int64_t> sizes_in(const TorchFile& file) {
  const auto buffers = file.root().items()[0]->items();
  require<CheckpointError>(buffers.size() == 1 && buffers[0]->entries().size() == 1,
                           "[checkpoint] {}: the optimizer has {} buffers; one of one dtype can be read. {}",
                           file.source(), buffers.size(), kRemedy);
  std::vector<int64_t> sizes;
  for (const pickle::Object* size : buffers[0]->entries()[0].value->items()) sizes.push_back(size->as_int());
  return sizes;
}

}  // namespace

bool is_rounded(double weight, double main_param, DType dtype) {
  // Numbers below the smallest normal one are equally far from each other.
  const double subnormal_step = dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-133;
  return std::abs(weight - main_param) <= std::max(epsilon(dtype) * std::abs(main_param), subnormal_step);
}

bool BucketedState::is_in(const CheckpointReader& reader) {
  const auto first = reader.metadata().tensors.lower_bound(kRoot);
  return first != reader.metadata().tensors.end() && first->first.starts_with(kRoot);
}

std::string BucketedState::object_key(std::string_view name) {
  return fmt::format("{}{}/shard_0_1", group_prefix(0), name);
}

BucketedState::BucketedState(const CheckpointReader& reader, Trainer& trainer) : reader_(reader) {
  require<CheckpointError>(!trainer.config().transformer.moe,
                           "[checkpoint] {}: the optimizer's buckets (dp_reshardable) of a mixture of experts cannot "
                           "be read. {}",
                           reader.directory(), kRemedy);
  const CheckpointReader::CommonState common = reader.read_common_state();
  const pickle::Object& arguments = common.state().at(common_state::kArgs);
  const ProcessGroupCollection& groups = trainer.groups();
  const int64_t tensor = size_in(arguments, "tensor_model_parallel_size"),
                pipeline = size_in(arguments, "pipeline_model_parallel_size");
  require<CheckpointError>(
      tensor == groups.tp.size() && pipeline == groups.pp.size() &&
          !trainer.config().parallel.virtual_pipeline_model_parallel_size,
      "[checkpoint] {}: the optimizer's buckets (dp_reshardable) are of {} tensor- and {} pipeline-parallel ranks "
      "without "
      "virtual stages, here are {} and {}. Give the checkpoint's sizes: what this run saves, any layout loads. {}",
      reader.directory(), tensor, pipeline, groups.tp.size(), groups.pp.size(), kRemedy);
  const std::string group = group_prefix(groups.pp.rank() * groups.tp.size() + groups.tp.rank());
  const std::string buffer = group + "gbuf_idx_0.dtype_";
  const auto first = reader.metadata().tensors.lower_bound(buffer);
  require<CheckpointError>(first != reader.metadata().tensors.end() && first->first.starts_with(buffer),
                           "[checkpoint] {} has no tensor {}. {}", reader.directory(), buffer, kRemedy);
  constexpr std::string_view kBucket = ".bucket_idx_";
  prefix_ = first->first.substr(0, first->first.find(kBucket) + kBucket.size());
  bucket_sizes_ = sizes_in(reader.read_object(group + "per_bucket_numel_unpadded/shard_0_1"));

  const pickle::Object* implementation = arguments.find("transformer_impl");
  const bool has_fused_norms = !implementation || implementation->as_string() != "local";
  const std::vector<const Parameter*> parameters = registered(trainer, has_fused_norms);
  size_t bucket = 0;
  int64_t end = 0;
  const auto require_fits = [&](bool fits) {
    require<CheckpointError>(fits, "[checkpoint] {}: the model's parameters do not fit the optimizer's buckets. {}",
                             reader.directory(), kRemedy);
  };
  for (size_t i = parameters.size(); i-- > 0;) {
    const int64_t size = parameters[i]->shape().num_elements();
    int64_t begin = (end + kAlignment - 1) / kAlignment * kAlignment;
    require_fits(bucket < bucket_sizes_.size());
    if (begin + size > bucket_sizes_[bucket]) {
      require_fits(bucket_sizes_[bucket] - end < kAlignment && ++bucket < bucket_sizes_.size() &&
                   size <= bucket_sizes_[bucket]);
      begin = 0;
    }
    slots_[parameters[i]] = {bucket, begin};
    end = begin + size;
  }
  require_fits(bucket + 1 == bucket_sizes_.size() && bucket_sizes_[bucket] - end < kAlignment);
}

CheckpointPlacement BucketedState::placement_of(const OptimizerState& state, std::string_view name) const {
  const Slot& slot = slots_.at(state.parameter);
  const int64_t size = state.end - state.begin;
  return {.key = fmt::format("{}{}.{}", prefix_, slot.bucket, name),
          .global_shape = {bucket_sizes_[slot.bucket]},
          .is_padded = false,
          .chunks = {{.offsets = {slot.begin + state.begin}, .sizes = {size}, .strides = {1}}}};
}

void BucketedState::require_fits_weights(Trainer& trainer) const {
  for (const OptimizerState& state : trainer.optimizer().states()) {
    const CheckpointPlacement placement = placement_of(state, optimizer_state::kDistributedMaster);
    std::vector<float> main(static_cast<size_t>(state.end - state.begin));
    const CheckpointChunk& chunk = placement.chunks[0];
    reader_.read_tensor(placement.key, placement.global_shape, chunk.offsets,
                        {main.data(), DType::kFloat32, chunk.sizes, chunk.strides});
    const Tensor weight = state.of(std::as_const(*state.parameter).value());
    dispatch_floating(weight.dtype(), [&]<class T>() {
      const std::vector<T> weights = read_values<T>(trainer.device(), weight);
      for (size_t i = 0; i < main.size(); ++i) {
        const auto value = static_cast<double>(main[i]);
        require<CheckpointError>(
            is_rounded(static_cast<double>(weights[i]), value, weight.dtype()),
            "[checkpoint] {}: element {} of {} is {}, its main parameter {}: the optimizer's buckets "
            "are of another model or precision. {}",
            reader_.directory(), state.begin + static_cast<int64_t>(i), state.parameter->name(),
            static_cast<double>(weights[i]), value, kRemedy);
      }
    });
  }
}

}  // namespace megatron
