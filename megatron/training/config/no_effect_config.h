// Flags that are accepted so that scripts run unchanged, and that can have no effect here by nature.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

/// The reason of each is in no_effect_fields.cpp, in --help and in the notes at start.
struct NoEffectConfig {
  bool masked_softmax_fusion = true;
  bool bias_swiglu_fusion = true;
  bool bias_dropout_fusion = true;
  bool apply_rope_fusion = true;
  bool gradient_accumulation_fusion = true;
  bool cross_entropy_loss_fusion = false;
  std::string cross_entropy_fusion_impl = "native";
  bool no_persist_layer_norm = false;
  bool attention_softmax_in_fp32 = false;  ///< resolved: on with apply_query_key_layer_scaling
  bool apply_query_key_layer_scaling = false;
  bool apply_residual_connection_post_layernorm = false;
  bool use_flash_attn = false;
  bool cache_mla_latents = false;
  std::string attention_backend = "auto";
  std::string transformer_impl = "transformer_engine";
  bool disable_jit_fuser = false;
  bool disable_bf16_reduced_precision_matmul = false;
  bool use_transformer_engine_op_fuser = false;
  bool use_cpu_initialization = false;
  bool te_rng_tracker = false;
  bool no_load_rng = false;
  bool create_attention_mask_in_dataloader = true;
  std::string distributed_backend = "nccl";
  bool use_gloo_process_groups = true;
  int64_t local_rank = 0;
  int64_t num_workers = 2;
  bool dataloader_fast_cache_load = false;
  bool dataloader_defer_npy_index_mmap = false;
  int64_t tensorboard_queue_size = 1000;
  bool tokenizer_hf_no_use_fast = false;
  bool trust_remote_code = false;
  bool use_gigatoken = false;
  int64_t vocab_extra_ids = 0;
  bool manual_gc = false;
  int64_t manual_gc_interval = 0;
  bool manual_gc_eval = true;
  int64_t empty_unused_memory_level = 0;
  bool use_mcore_models = false;
  bool use_dist_ckpt = false;
  std::optional<std::string> dist_ckpt_format;
  bool ckpt_fully_parallel_save_deprecated = false;
  bool enable_one_logger = true;
  bool use_pytorch_profiler = false;
  bool pytorch_profiler_collect_shapes = false;
  bool record_shapes = false;
  bool overlap_p2p_comm_warmup_flush = false;
  bool overlap_param_gather_with_optimizer_step = false;
  bool defer_embedding_wgrad_compute = false;
  int64_t wgrad_deferral_limit = 0;
  bool test_mode = false;
  bool enable_experimental = false;
  bool adlr_autoresume = false;
  int64_t adlr_autoresume_interval = 1000;
  bool enable_ft_package = false;
  bool calc_ft_timeouts = false;
  int64_t ft_num_warmup_iters = 5;
  std::optional<int64_t> train_sync_interval;
  bool standalone = false;
  int64_t node_rank = 0;
  std::optional<std::string> master_addr;
  std::optional<int64_t> master_port;
  std::optional<std::string> rdzv_backend;
  std::optional<std::string> rdzv_endpoint;
  std::optional<std::string> rdzv_id;
};

}  // namespace megatron
