#include "megatron/training/checkpoint/main_param_check.h"

#include <algorithm>
#include <cmath>

#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/load_requests.h"

namespace megatron {
namespace {

/// Returns the part of a stored tensor that a placement has.
std::vector<double> stored_values(const CheckpointReader& reader, const std::string& key,
                                  const CheckpointPlacement& placement, int64_t size) {
  const DType dtype = info(reader.type_of(key).value()).dtype.value();
  std::vector<double> values(static_cast<size_t>(size));
  dispatch_floating(dtype, [&]<class T>() {
    std::vector<T> stored(static_cast<size_t>(size));
    for (const CheckpointChunk& chunk : placement.chunks) {
      const View destination{stored.data() + chunk.first, dtype, chunk.sizes, chunk.strides};
      if (placement.is_padded)
        reader.read_resized_tensor(key, chunk.offsets, destination);
      else
        reader.read_tensor(key, placement.global_shape, chunk.offsets, destination);
    }
    std::ranges::transform(stored, values.begin(), [](T value) { return static_cast<double>(value); });
  });
  return values;
}

}  // namespace

bool is_rounded(double weight, double main_param, DType dtype) {
  // Numbers below the smallest normal one are equally far from each other.
  const double subnormal_step = dtype == DType::kFloat16 ? 0x1p-24 : 0x1p-133;
  return std::abs(weight - main_param) <= std::max(epsilon(dtype) * std::abs(main_param), subnormal_step);
}

void require_main_params_of_weights(const CheckpointReader& reader, Trainer& trainer) {
  for (const OptimizerState& state : trainer.optimizer().states()) {
    const CheckpointPlacement placement = placement_in(reader, trainer, state);
    const std::string key = optimizer_state_key(optimizer_state::kDistributedMaster, placement.key);
    const int64_t size = state.end - state.begin;
    const std::vector<double> main = stored_values(reader, key, placement, size);
    const std::vector<double> weights = stored_values(reader, placement.key, placement, size);
    const DType dtype = info(reader.type_of(placement.key).value()).dtype.value();
    for (size_t i = 0; i < main.size(); ++i)
      require<CheckpointError>(is_rounded(weights[i], main[i], dtype),
                               "[checkpoint] {}: element {} of {} is {}, its main parameter {}: parameters lie in the "
                               "optimizer's buckets in another order. Load the weights alone with --no-load-optim, or "
                               "save with Megatron's --dist-ckpt-optim-fully-reshardable.",
                               reader.directory(), state.begin + static_cast<int64_t>(i), state.parameter->name(),
                               weights[i], main[i]);
  }
}

}  // namespace megatron
