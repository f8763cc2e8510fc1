// Settings of checkpoints: when one is written, which one is loaded, and which of its parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/dist_checkpointing/strict_handling.h"

namespace megatron {

struct CheckpointConfig {
  std::optional<std::string> save;  ///< directory
  std::optional<int64_t> save_interval;
  std::optional<int64_t> save_retain_interval;
  bool no_save_optim = false;
  bool no_save_rng = false;
  bool dist_ckpt_optim_fully_reshardable = false;
  bool distrib_optim_fully_reshardable_mem_efficient = false;
  std::string dist_ckpt_optim_form = "fully_reshardable";  ///< of a distributed optimizer's state
  bool save_tokenizer_assets = true;
  bool take_over_save_lock = false;
  std::optional<std::string> load;  ///< directory
  std::optional<std::string> pretrained_checkpoint;
  std::optional<std::string> load_hf;  ///< folder of a Hugging Face model
  std::optional<int64_t> ckpt_step;
  std::optional<int64_t> override_ckpt_iteration;
  bool no_load_optim = false;
  bool load_main_params_from_ckpt = false;
  bool finetune = false;
  bool allow_other_tokenizer = false;
  bool use_checkpoint_args = false;
  bool exit_on_missing_checkpoint = false;
  std::string ckpt_format = "torch_dist";
  bool async_save = false;
  int64_t async_ckpt_cpu_priority = 10;  ///< niceness of the thread that writes
  int64_t async_ckpt_io_priority = 3;    ///< its I/O class
  int64_t dist_ckpt_workers = 1;         ///< files of each rank
  bool verify_integrity = false;
  std::optional<int64_t> non_persistent_save_interval;
  std::optional<std::string> non_persistent_ckpt_type;
  std::optional<std::string> non_persistent_global_ckpt_dir;
  std::optional<std::string> non_persistent_local_ckpt_dir;
  std::string non_persistent_local_ckpt_algo = "fully_parallel";
  bool replication = false;  ///< of local checkpoints
  std::optional<int64_t> replication_jump;
  int64_t replication_factor = 2;
  bool ckpt_fully_parallel_save = true;
  bool ckpt_fully_parallel_load = false;
  StrictHandling dist_ckpt_strictness = StrictHandling::kAssumeOkUnexpected;

  // These have no effect; checkpoint_fields.cpp has the reasons.
  bool use_persistent_ckpt_worker = false;
  std::string async_strategy = "nvrx";
  bool async_ckpt_use_cpu_shm = false;
  bool auto_detect_ckpt_format = false;
  bool ckpt_assume_constant_structure = false;
  std::string ckpt_fully_parallel_save_process_group = "dp";
  std::string ckpt_fully_parallel_load_process_group = "dp";
  std::string ckpt_fully_parallel_load_exchange_algo = "broadcast";
  bool ckpt_drop_redundant_extra_state = false;
  bool ckpt_load_validate_sharding_integrity = true;
  bool dist_ckpt_save_pre_mcore_014 = false;

  bool saves() const { return save.has_value(); }
  bool is_local() const { return non_persistent_ckpt_type == "local"; }  ///< of those that are not persistent
  bool loads() const { return load || pretrained_checkpoint || load_hf; }
};

}  // namespace megatron
