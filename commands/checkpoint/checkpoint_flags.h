// The flags of `megatron checkpoint ACTION`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/field.h"

namespace megatron {

struct CheckpointFlags {
  std::vector<std::string> load;  ///< one folder, or for diff two
  std::optional<int64_t> ckpt_step;
  bool json = false;
  std::vector<std::string> keys;  ///< parts of tensors' names
  bool args = false, chunks = false;
  bool check_values = false;
  double atol = 0, rtol = 0;
  std::optional<int64_t> keep_last, keep_every;
  std::optional<std::string> save;
  std::string ckpt_format = "torch_dist";
  int64_t max_shard_size_mb = 5000;
  std::optional<int64_t> target_tensor_parallel_size, target_pipeline_parallel_size,
      target_virtual_pipeline_parallel_size, target_expert_parallel_size, target_expert_tensor_parallel_size,
      target_data_parallel_size;
  std::optional<std::string> dist_ckpt_optim_form;
  bool yes = false, take_over_save_lock = false;

  /// True if --keys chooses a tensor.
  bool takes(const std::string& key) const;
};

FieldTable describe(CheckpointFlags& flags);

/// @param args  the action and its flags; folders may come first without --load.
/// @throw ConfigError listing all mistakes.
CheckpointFlags parse_checkpoint_flags(const std::vector<std::string>& args);

}  // namespace megatron
