// When a checkpoint is written, which one is read, and what of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

struct CheckpointConfig {
  std::optional<std::string> save;  ///< directory
  std::optional<int64_t> save_interval;
  std::optional<int64_t> save_retain_interval;
  bool no_save_optim = false;
  bool save_tokenizer_assets = true;
  bool take_over_save_lock = false;
  std::optional<std::string> load;  ///< directory
  std::optional<std::string> pretrained_checkpoint;
  std::optional<int64_t> ckpt_step;
  std::optional<int64_t> override_ckpt_iteration;
  bool no_load_optim = false;
  bool finetune = false;
  bool allow_other_tokenizer = false;
  bool use_checkpoint_args = false;
  bool exit_on_missing_checkpoint = false;
  std::string ckpt_format = "torch_dist";
};

}  // namespace megatron
