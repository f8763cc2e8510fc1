// Flags that can have no effect here by nature, each with the reason.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

constexpr const char* kFusion = "kernels are fused wherever that is faster, which does not change results";
constexpr const char* kOneKernel = "there is one implementation per device, chosen when the program starts";
constexpr const char* kSoftmax = "scores and softmax are always in fp32 or better, so that nothing overflows";
constexpr const char* kNoCollector = "there is no garbage collector";
constexpr const char* kStateless = "random numbers depend on seed, name and index alone, not on a device's generator";
constexpr const char* kBackend = "the backend of collectives follows from the device and the launcher";
constexpr const char* kIndices =
    "indices are opened and checked on all ranks at once, in seconds for thousands of files, and what is missing is "
    "built";
constexpr const char* kProfile = "--profile always writes a trace, and of the same format";
constexpr const char* kShapes = "the trace of --profile always says the shapes";
constexpr const char* kNativeTokenizers = "tokenizers are native code";
constexpr const char* kWeightGradients =
    "the gradient of the output layer's weight has the same value whenever it is computed; zero-bubble schedules "
    "(--pipeline-schedule) fill the bubble with the weight gradients of all layers";
constexpr const char* kRankMonitor =
    "ranks are not restarted by a monitor (nvidia-resiliency-ext); one that hangs is found by "
    "--distributed-timeout-minutes, and a job that ends is to be started again by the scheduler";
constexpr const char* kAutoResume =
    "the scheduler of NVIDIA's own clusters asks a run to end through a Python module; --exit-signal-handler and "
    "--exit-duration-in-mins end a run with a checkpoint on any cluster";
constexpr const char* kMeeting =
    "a flag of torchrun: ranks of one process need no address to meet, and those of a launcher have the launcher's";
constexpr const char* kOldName = "old name of what is always so";

void describe_computation(FieldTable& table, PretrainConfig& config) {
  NoEffectConfig& none = config.no_effect;
  table.add("masked_softmax_fusion", none.masked_softmax_fusion, "")
      .turned_off_by({"--no-masked-softmax-fusion"})
      .without_effect(kFusion);
  table.add("bias_swiglu_fusion", none.bias_swiglu_fusion, "")
      .turned_off_by({"--no-bias-swiglu-fusion"})
      .without_effect(kFusion);
  table.add("bias_dropout_fusion", none.bias_dropout_fusion, "")
      .turned_off_by({"--no-bias-dropout-fusion"})
      .without_effect(kFusion);
  table.add("apply_rope_fusion", none.apply_rope_fusion, "")
      .turned_off_by({"--no-rope-fusion"})
      .without_effect(kFusion);
  table.add("gradient_accumulation_fusion", none.gradient_accumulation_fusion, "")
      .turned_off_by({"--no-gradient-accumulation-fusion"})
      .without_effect(kFusion);
  table.add("cross_entropy_loss_fusion", none.cross_entropy_loss_fusion, "").without_effect(kFusion);
  table.add("cross_entropy_fusion_impl", none.cross_entropy_fusion_impl, "")
      .one_of({"native"})
      .later({"te"})
      .without_effect(kFusion);
  table.add("no_persist_layer_norm", none.no_persist_layer_norm, "").without_effect(kFusion);
  table.add("disable_jit_fuser", none.disable_jit_fuser, "").without_effect("nothing is compiled at run time");
  table.add("attention_softmax_in_fp32", none.attention_softmax_in_fp32, "").without_effect(kSoftmax);
  table.add("apply_query_key_layer_scaling", none.apply_query_key_layer_scaling, "")
      .without_effect(kSoftmax)
      .taken_from_checkpoint();
  table.add("apply_residual_connection_post_layernorm", none.apply_residual_connection_post_layernorm, "")
      .without_effect("Megatron Core's layers do not read it: the residual is always taken before the norm")
      .taken_from_checkpoint();
  table.add("use_flash_attn", none.use_flash_attn, "").without_effect(kOneKernel);
  table.add("cache_mla_latents", none.cache_mla_latents, "")
      .without_effect(
          "it is about inference, and training keeps no cache; megatron generate keeps latent vectors wherever "
          "attention "
          "can read them");
  table.add("attention_backend", none.attention_backend, "")
      .one_of({"flash", "fused", "unfused", "auto"})
      .later({"local"})
      .without_effect(kOneKernel);
  table.add("transformer_impl", none.transformer_impl, "")
      .one_of({"local", "transformer_engine"})
      .later({"inference_optimized"})
      .without_effect(
          "there is one implementation per device, chosen when the program starts; with local, checkpoints "
          "hold Adam's steps as torch's AdamW reads them");
  table.add("disable_bf16_reduced_precision_matmul", none.disable_bf16_reduced_precision_matmul, "")
      .without_effect("matmuls of bf16 are always summed in fp32");
  table.add("use_transformer_engine_op_fuser", none.use_transformer_engine_op_fuser, "").without_effect(kFusion);
  table.add("use_cpu_initialization", none.use_cpu_initialization, "").without_effect(kStateless);
  table.add("te_rng_tracker", none.te_rng_tracker, "").without_effect(kStateless);
  table.add("no_load_rng", none.no_load_rng, "").without_effect(kStateless);
  table.add("create_attention_mask_in_dataloader", none.create_attention_mask_in_dataloader, "")
      .turned_off_by({"--no-create-attention-mask-in-dataloader"})
      .without_effect("no attention mask is ever stored");
}

void describe_running(FieldTable& table, PretrainConfig& config) {
  NoEffectConfig& none = config.no_effect;
  table.add("distributed_backend", none.distributed_backend, "").one_of({"nccl", "gloo"}).without_effect(kBackend);
  table.add("use_gloo_process_groups", none.use_gloo_process_groups, "")
      .turned_off_by({"--disable-gloo-process-groups"})
      .without_effect(kBackend);
  table.add("local_rank", none.local_rank, "").without_effect("the rank comes from the launcher's environment");
  table.add("num_workers", none.num_workers, "")
      .at_least(0)
      .without_effect("one thread reads two batches ahead; there are no loader processes")
      .differs({.megatron = "processes that read batches ahead",
                .ours = "has no effect: one thread reads two batches ahead, and no result depends on it"})
      .known_as("workers num-worker n-workers");
  table.add("dataloader_fast_cache_load", none.dataloader_fast_cache_load, "").without_effect(kIndices);
  table.add("dataloader_defer_npy_index_mmap", none.dataloader_defer_npy_index_mmap, "")
      .without_effect("arrays of an index are mapped, so a page is read when a sample first needs it");
  table.add("tensorboard_queue_size", none.tensorboard_queue_size, "")
      .at_least(1)
      .without_effect("every event is written at once");
  table.add("tokenizer_hf_no_use_fast", none.tokenizer_hf_no_use_fast, "").without_effect(kNativeTokenizers);
  table.add("trust_remote_code", none.trust_remote_code, "").without_effect("no Python code is run");
  table.add("use_gigatoken", none.use_gigatoken, "").without_effect(kNativeTokenizers);
  table.add("vocab_extra_ids", none.vocab_extra_ids, "").at_least(0).without_effect("Megatron 0.20 reads it nowhere");
  table.add("manual_gc", none.manual_gc, "").without_effect(kNoCollector);
  table.add("manual_gc_interval", none.manual_gc_interval, "").at_least(0).without_effect(kNoCollector);
  table.add_on("manual_gc_eval", none.manual_gc_eval, "").without_effect(kNoCollector);
  table.add("empty_unused_memory_level", none.empty_unused_memory_level, "")
      .at_least(0)
      .at_most(2)
      .without_effect("memory is laid out once, there is no cache to empty");
  table.add("use_mcore_models", none.use_mcore_models, "").without_effect(kOldName);
  table.add("use_dist_ckpt", none.use_dist_ckpt, "").without_effect(kOldName);
  table.add("dist_ckpt_format", none.dist_ckpt_format, "").without_effect("old name; --ckpt-format says it");
  table.add("ckpt_fully_parallel_save_deprecated", none.ckpt_fully_parallel_save_deprecated, "")
      .named({"--ckpt-fully-parallel-save"})
      .without_effect(kOldName);
  table.add("enable_one_logger", none.enable_one_logger, "")
      .turned_off_by({"--no-one-logger"})
      .without_effect("nothing is sent anywhere");
  table.add("use_pytorch_profiler", none.use_pytorch_profiler, "").without_effect(kProfile);
  table.add("pytorch_profiler_collect_shapes", none.pytorch_profiler_collect_shapes, "").without_effect(kShapes);
  table.add("record_shapes", none.record_shapes, "").without_effect(kShapes);
}

void describe_pipeline_order(FieldTable& table, PretrainConfig& config) {
  NoEffectConfig& none = config.no_effect;
  table.add("overlap_p2p_comm_warmup_flush", none.overlap_p2p_comm_warmup_flush, "")
      .named({"--overlap-p2p-communication-warmup-flush"})
      .without_effect("sends of warm-up and flush overlap with work as all others do");
  table.add("overlap_param_gather_with_optimizer_step", none.overlap_param_gather_with_optimizer_step, "")
      .without_effect(
          "--overlap-param-gather gathers each bucket beside the forward pass of the layers in front of it, and no "
          "result depends on when");
  table.add("defer_embedding_wgrad_compute", none.defer_embedding_wgrad_compute, "").without_effect(kWeightGradients);
  table.add("wgrad_deferral_limit", none.wgrad_deferral_limit, "").at_least(0).without_effect(kWeightGradients);
}

void describe_fault_tolerance(FieldTable& table, PretrainConfig& config) {
  NoEffectConfig& none = config.no_effect;
  table.add("enable_ft_package", none.enable_ft_package, "").without_effect(kRankMonitor);
  table.add("calc_ft_timeouts", none.calc_ft_timeouts, "").without_effect(kRankMonitor);
  table.add("ft_num_warmup_iters", none.ft_num_warmup_iters, "").at_least(0).without_effect(kRankMonitor);
  table.add("test_mode", none.test_mode, "").without_effect("it turns on tests inside of Megatron's own layers");
  table.add("enable_experimental", none.enable_experimental, "")
      .without_effect(
          "in Megatron it allows code that is marked as experimental; every flag that is supported here runs "
          "without it");
  table.add("adlr_autoresume", none.adlr_autoresume, "")
      .without_effect(kAutoResume)
      .differs(
          {.megatron = "asks the Python module of NVIDIA's scheduler whether to end, and exits at the start without it",
           .ours = "has no effect, so that scripts run unchanged"});
  table.add("adlr_autoresume_interval", none.adlr_autoresume_interval, "").at_least(1).without_effect(kAutoResume);
  table.add("train_sync_interval", none.train_sync_interval, "")
      .at_least(1)
      .without_effect("the host waits for the device at the end of every step");
}

/// Scripts start `torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py`; what they give there may stay where it is.
void describe_torchrun(FieldTable& table, PretrainConfig& config) {
  NoEffectConfig& none = config.no_effect;
  table.add("standalone", none.standalone, "").without_effect(kMeeting);
  table.add("node_rank", none.node_rank, "").named({"--node-rank", "--node_rank"}).at_least(0).without_effect(kMeeting);
  table.add("master_addr", none.master_addr, "").named({"--master-addr", "--master_addr"}).without_effect(kMeeting);
  table.add("master_port", none.master_port, "")
      .named({"--master-port", "--master_port"})
      .at_least(0)
      .without_effect(kMeeting);
  table.add("rdzv_backend", none.rdzv_backend, "").named({"--rdzv-backend", "--rdzv_backend"}).without_effect(kMeeting);
  table.add("rdzv_endpoint", none.rdzv_endpoint, "")
      .named({"--rdzv-endpoint", "--rdzv_endpoint"})
      .without_effect(kMeeting);
  table.add("rdzv_id", none.rdzv_id, "").named({"--rdzv-id", "--rdzv_id"}).without_effect(kMeeting);
}

}  // namespace

void describe_no_effect(FieldTable& table, PretrainConfig& config) {
  table.begin_group(
      "Accepted without effect",
      "Scripts for Megatron may hold these; here they can change nothing. The start banner names those given.");
  describe_computation(table, config);
  describe_running(table, config);
  describe_pipeline_order(table, config);
  describe_fault_tolerance(table, config);
  describe_torchrun(table, config);
}

}  // namespace megatron
