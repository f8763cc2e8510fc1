// Settings of logs: what is written about a run, and where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

struct LoggingConfig {
  bool print_config = false;  ///< ours: all arguments at the start
  int64_t log_interval = 100;
  bool log_throughput = false;
  std::optional<double> kernel_ceiling;  ///< ours: TFLOP/s of a rank that the log line is held against
  bool measure_speed = true;             ///< ours: what MFU and percent of the kernel ceiling are held against
  bool log_progress = false;
  bool log_params_norm = false;
  std::optional<std::string> log_jsonl;       ///< ours: one JSON object per logged step, appended
  std::optional<std::string> log_loss_curve;  ///< ours: SVG picture of the losses, drawn anew with each line
  std::optional<int64_t> logging_level;       ///< Python's: 10 debug, 20 information, 30 warnings, 40 errors, 50
  int64_t timing_log_level = 0;
  std::string timing_log_option = "minmax";
  std::optional<std::string> tensorboard_dir;
  int64_t tensorboard_log_interval = 1;
  bool log_timers_to_tensorboard = false;
  bool log_loss_scale_to_tensorboard = true;
  bool log_validation_ppl_to_tensorboard = false;
  bool log_memory_to_tensorboard = false;
  bool log_world_size_to_tensorboard = false;
  std::optional<int64_t> log_memory_interval;
  bool log_device_memory_used = false;
  std::optional<std::string> wandb_project;  ///< this and the next three: of Weights & Biases
  std::optional<std::string> wandb_exp_name;
  std::optional<std::string> wandb_save_dir;
  std::optional<std::string> wandb_entity;
};

}  // namespace megatron
