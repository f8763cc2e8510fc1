#include "megatron/training/config/differences.h"

#include <array>

#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

bool never(const PretrainConfig&) { return false; }
bool logs_stragglers(const PretrainConfig& c) { return c.faults.log_straggler; }
bool is_interleaved(const PretrainConfig& c) { return c.parallel.virtual_pipeline_model_parallel_size.has_value(); }
bool saves(const PretrainConfig& c) { return c.checkpoint.save.has_value(); }
bool is_cyclic(const PretrainConfig& c) { return c.data.dataloader_type == "cyclic"; }
bool profiles(const PretrainConfig& c) { return c.profiling.profile; }

constexpr auto kDifferences = std::to_array<Difference>({
    {"loss", "averages micro-batch means: how sequences fall into micro-batches and ranks changes the gradient",
     "every valid token of a step weighs equally (--calculate-per-token-loss is the default), so the gradient does not "
     "depend on the layout; --no-calculate-per-token-loss gives Megatron's",
     [](const PretrainConfig& c) { return c.training.calculate_per_token_loss; }},
    {"--no-calculate-per-token-loss", "its default, without such a flag",
     "averages micro-batch means as Megatron does: the gradient depends on the layout",
     [](const PretrainConfig& c) { return !c.training.calculate_per_token_loss; }},
    {"evaluation", "fails while it builds datasets if --eval-interval is not given",
     "without --eval-interval there is no evaluation during training",
     [](const PretrainConfig& c) {
       return !c.validation.eval_interval && !c.validation.skip_train && c.validation.evaluates();
     }},
    {"padding rows of the vocabulary",
     "they take part in the softmax: the loss depends on how many there are, and so on the tensor-parallel size",
     "they take no part in the softmax, as in Hugging Face's models without them: the loss is that of every layout, "
     "and "
     "at the start lower by about ln(rows / tokens), 0.00093 for 50257 tokens in 50304 rows",
     [](const PretrainConfig& c) { return c.transformer.padded_vocab_size > c.transformer.vocab_size; }},
    {"randomness", "initial weights and dropout masks depend on ranks, stages and device",
     "initial weights and dropout masks depend on --seed and names alone: they are the same on every layout",
     [](const PretrainConfig&) { return true; }},
    {"gradients", "sums those of fp16 in fp16 unless --accumulate-allreduce-grads-in-fp32 is given",
     "gradients of fp16 are summed in fp32", [](const PretrainConfig& c) { return c.precision.fp16; }},
    {"--accumulate-allreduce-grads-in-fp32", "sums gradients of fp16 in fp32, which it sums in fp16 otherwise",
     "has no effect: gradients are summed in fp32 anyway, except with --grad-reduce-in-bf16 and --main-grads-dtype "
     "bf16, which exclude it",
     [](const PretrainConfig& c) { return c.given.contains("accumulate_allreduce_grads_in_fp32"); }},
    {"--window-size A,B",
     "--transformer-impl local lets a query see B later positions, and with -1 not its own; Transformer Engine takes 0 "
     "for B",
     "B has no effect: attention is causal, so a query sees its own position and none after it",
     [](const PretrainConfig& c) { return c.transformer.window_size && c.transformer.window_size->second != 0; }},
    {"--qk-layernorm --qk-l2-norm", "takes --qk-l2-norm alone", "refused: one norm at a time", never},
    {"--decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers with one stage",
     "accepts some numbers, such as 2 and 1 of 4 layers, and builds the first's alone",
     "refused: they name two ranks, but there is one", never},
    {"--num-workers", "processes that read batches ahead",
     "has no effect: one thread reads two batches ahead, and no result depends on it", never},
    {"--vocab-file, --merge-file, --tokenizer-model, --null-tokenizer-eod-id, --null-tokenizer-pad-id",
     "ignores those that the tokenizer type does not read", "the same, and the banner names them", never},
    {"output folders such as --save and --tensorboard-dir", "makes all missing folders of a path",
     "the same, but makes no folder directly below /: such a path is mistyped or its disk is not mounted", never},
    {"--rampup-batch-size", "accepts it and ignores it since 0.17",
     "ramps as Megatron-LM 0.16 did: a schedule in iterations counts --global-batch-size samples for each, so the "
     "learning rate decays less far than the run is long",
     [](const PretrainConfig& c) { return !c.training.rampup_batch_size.empty(); }},
    {"--num-query-groups", "ignores it without --group-query-attention, and trains a key and value head for each head",
     "means grouped-query attention, with or without --group-query-attention",
     [](const PretrainConfig& c) {
       return c.given.contains("num_query_groups") && !c.given.contains("group_query_attention") &&
              c.transformer.num_query_groups != c.transformer.num_attention_heads;
     }},
    {"--step-batch-size-schedule",
     "fails in the middle of the run at a batch that does not divide, or that is smaller than before",
     "refused at start", never},
    {"--step-batch-size-schedule --train-iters",
     "counts --micro-batch-size times data-parallel size samples for an iteration of the learning rate's schedule, "
     "which may so end early",
     "the same, and the banner says at which iteration it ends", never},
    {"--num-virtual-stages-per-pipeline-rank", "does not check it against --num-layers, and builds fewer layers",
     "refused if the layers do not divide", never},
    {"--quick-geglu --squared-relu", "takes the second", "refused: one activation at a time", never},
    {"--lr", "fails late without it", "required unless --skip-train", never},
    {"data", "fails late without a source", "one source is required", never},
    {"a number such as -1e-5", "reads it as a flag", "reads it as a number", never},
    {"nan and inf", "accepts them as numbers", "refused", never},
    {"an empty text such as --save \"\"", "accepts it", "refused", never},
    {"--device", "trains on GPUs alone",
     "cpu or cuda; without it a GPU where one answers and can run this, else the CPU: the banner says which",
     [](const PretrainConfig& c) { return !c.launch.device; }},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "must be 1 on some devices",
     "no environment variable is needed; ranks on GPUs raise a value below the number of their streams to 32", never},
    {"batch-size, learning-rate and other mistakes", "stops at the first",
     "all are reported at once, before anything is allocated", never},
    {"--use-checkpoint-args",
     "leaves windows, softmax type, norms of queries and keys and others as the command line has them",
     "takes everything that says what the weights mean", never},
    {"log lines, JSON lines, TensorBoard files", "written by the last rank",
     "written by rank 0; numbers are of all ranks", [](const PretrainConfig& c) { return c.parallel.world_size > 1; }},
    {"--tp-comm-overlap",
     "needs Transformer Engine, MPI or another way to meet for its buffers, and settings for each product "
     "(--tp-comm-overlap-cfg)",
     "needs neither, and runs on any device: collectives of the ordinary group in parts (--tp-comm-overlap-ag-splits, "
     "-rs-splits)",
     [](const PretrainConfig& c) { return c.parallel.tp_comm_overlap; }},
    {"--attention-dropout", "the mask is that of the library and of the layout",
     "the mask is the same on any layout and device, by our own kernels, unless --cudnn-attention-dropout is given: "
     "then it depends on tensor parallelism and on micro-batches",
     [](const PretrainConfig& c) {
       return c.transformer.cudnn_attention_dropout && c.transformer.attention_dropout > 0;
     }},
    {"--use-precision-aware-optimizer", "needs --use-distributed-optimizer", "works without it too", never},
    {"--main-params-dtype bf16", "takes fp32 and fp16",
     "weights have no finer copy: each step rounds them up or down at random, right on average, so small updates are "
     "not lost but come as noise of one unit in the last of 8 bits. The last digits of a loss need fp32",
     [](const PretrainConfig& c) { return c.optimizer.main_params_dtype == MainParamsDType::kBFloat16; }},
    {"--use-distributed-optimizer --save", "stores buckets, which fit the same tensor and pipeline sizes alone",
     "stores the optimizer's state as whole tensors: any layout loads it, as with --dist-ckpt-optim-fully-reshardable",
     [](const PretrainConfig& c) {
       return c.optimizer.use_distributed_optimizer && saves(c) && !c.checkpoint.no_save_optim;
     }},
    {"--async-save", "saves synchronously without --use-persistent-ckpt-worker, with a warning",
     "needs no other flag: a thread of each rank writes",
     [](const PretrainConfig& c) { return saves(c) && c.checkpoint.async_save; }},
    {"--load-main-params-from-ckpt",
     "needs the distributed optimizer, and takes the model's tensors as they are stored",
     "works with each optimizer, and takes main parameters in fp32 where the checkpoint has them",
     [](const PretrainConfig& c) { return c.checkpoint.load_main_params_from_ckpt; }},
    {"a bf16 checkpoint in a run without --bf16",
     "loads the weights, rounded to bf16, and leaves the main parameters out",
     "main parameters become the weights where the optimizer's state is loaded", never},
    {"--no-overlap-p2p-communication, --no-align-param-gather", "move exchanges of virtual stages in time",
     "refused where there are virtual stages: sends always overlap with work, and all stages gather weights right "
     "after the step",
     never},
    {"--overlap-grad-reduce", "starts sums of interleaved stages at the same moment, unless --no-align-grad-reduce",
     "a sum starts when its gradients are complete, on each stage, as with --no-align-grad-reduce",
     [](const PretrainConfig& c) {
       return c.parallel.overlap_grad_reduce && c.parallel.align_grad_reduce && is_interleaved(c) &&
              c.parallel.data_parallel_size > 1;
     }},
    {"loading the learning-rate schedule", "stops at the first value that differs, with some already taken over",
     "lists all that differ and changes nothing", never},
    {"--dataloader-type cyclic",
     "a sample's place hangs on the micro-batch size and the number of replicas; a checkpoint goes on in any other "
     "order without a word",
     "Megatron-LM's order, so the losses are those of this layout and micro-batch size alone, unlike those of the "
     "default "
     "loader; a checkpoint that goes on with others is loaded with a warning",
     is_cyclic},
    {"--rerun-mode", "looks at each rank's losses and buckets, not in the first step; report_stats fails at the start",
     "looks at the loss and the gradient norm of all ranks, from the first step on; rejected_step.json beside the "
     "checkpoints says what the next run is to compare",
     never},
    {"--log-straggler", "times forward passes alone, and reads power, temperature and clock of GPUs",
     "times computing, data and waits, and names the slowest rank and what it spends its time on", logs_stragglers},
    {"--wandb-project", "needs the client of Weights & Biases, which sends what it gets, and the network",
     "writes the client's offline form; 'wandb sync FOLDER' uploads it",
     [](const PretrainConfig& c) { return c.logging.wandb_project.has_value(); }},
    {"--profile", "switches a tool on and off (nsys, PyTorch's profiler), which must be there",
     "needs no tool: writes one trace of all ranks to the file of --profile-trace and prints the time by class of op",
     [](const PretrainConfig& c) { return c.profiling.profile; }},
    {"--cuda-graph-impl full_iteration", "needs --no-check-for-nan-in-loss-and-grad; is recorded once",
     "looks at loss and gradient norm at the end of every step all the same; is recorded again where the number of "
     "micro-batches changes",
     [](const PretrainConfig& c) { return c.cuda_graph.records(); }},
    {"--profile-step-start, --profile-step-end, --profile-ranks", "accepts steps and ranks that never come",
     "refused where nothing would be recorded", never},
});

// A setting whose effect hangs on another one.
struct Dependent {
  std::string_view name;
  std::string_view needs;  // "X": it has no effect without X
  bool (*has_effect)(const PretrainConfig&);
};

bool rotates(const PretrainConfig& c) {
  return c.transformer.position_embedding_type == PositionEmbeddingType::kRope ||
         c.transformer.position_embedding_type == PositionEmbeddingType::kYarn;
}
bool is_yarn(const PretrainConfig& c) { return c.transformer.position_embedding_type == PositionEmbeddingType::kYarn; }
bool is_rope(const PretrainConfig& c) { return c.transformer.position_embedding_type == PositionEmbeddingType::kRope; }
bool is_gated(const PretrainConfig& c) { return c.transformer.gated_linear_unit; }
bool recomputes_layers(const PretrainConfig& c) {
  return c.transformer.recompute_granularity == RecomputeGranularity::kFull;
}
bool is_adam(const PretrainConfig& c) { return c.optimizer.optimizer == OptimizerType::kAdam; }
bool scales_loss(const PretrainConfig& c) { return c.precision.fp16; }
bool scales_dynamically(const PretrainConfig& c) { return c.precision.fp16 && !c.optimizer.loss_scale; }
bool warms_up(const PretrainConfig& c) {
  return c.scheduler.lr_warmup_iters > 0 || c.scheduler.lr_warmup_samples > 0 || c.scheduler.lr_warmup_fraction;
}
bool is_wsd(const PretrainConfig& c) { return c.scheduler.lr_decay_style == LrDecayStyle::kWsd; }
bool logs_to_wandb(const PretrainConfig& c) { return c.logging.wandb_project.has_value(); }
bool has_tensorboard(const PretrainConfig& c) { return c.logging.tensorboard_dir.has_value(); }
bool loads(const PretrainConfig& c) {
  return c.checkpoint.load.has_value() || c.checkpoint.pretrained_checkpoint.has_value();
}
bool overlaps_tensor(const PretrainConfig& c) { return c.parallel.tp_comm_overlap; }
bool gathers_in_parts(const PretrainConfig& c) { return overlaps_tensor(c) && c.parallel.tp_comm_overlap_ag; }
bool scatters_in_parts(const PretrainConfig& c) {
  return overlaps_tensor(c) && (c.parallel.tp_comm_overlap_rs || c.parallel.tp_comm_overlap_rs_dgrad);
}
bool outlasts_graph_warm_up(const PretrainConfig& c) {
  const int64_t num_steps = c.validation.skip_train ? 0 : c.training.train_iters.value_or(0);
  return !c.cuda_graph.records() || num_steps > c.cuda_graph.warmup_steps;
}
bool saves_in_background(const PretrainConfig& c) { return saves(c) && c.checkpoint.async_save; }
bool has_stages(const PretrainConfig& c) { return c.parallel.pipeline_model_parallel_size > 1; }
bool has_replicas(const PretrainConfig& c) { return c.parallel.data_parallel_size > 1; }
bool has_bpe_tokenizer(const PretrainConfig& c) { return c.tokenizer.tokenizer_type == "GPT2BPETokenizer"; }
bool has_tokenizer_json(const PretrainConfig& c) { return c.tokenizer.tokenizer_type == "HuggingFaceTokenizer"; }
bool has_tiktoken(const PretrainConfig& c) { return c.tokenizer.tokenizer_type == "TikTokenizer"; }
bool has_bert_tokenizer(const PretrainConfig& c) { return c.tokenizer.tokenizer_type.starts_with("BertWordPiece"); }
bool has_sentence_piece_tokenizer(const PretrainConfig& c) {
  const std::string& type = c.tokenizer.tokenizer_type;
  return type == "SentencePieceTokenizer" || type == "GPTSentencePieceTokenizer" || type == "Llama2Tokenizer";
}
bool reads_vocab_file(const PretrainConfig& c) {
  return has_bpe_tokenizer(c) || has_bert_tokenizer(c) || c.tokenizer.tokenizer_type == "CharTokenizer";
}
bool reads_tokenizer_model(const PretrainConfig& c) {
  return has_tokenizer_json(c) || has_tiktoken(c) || has_sentence_piece_tokenizer(c);
}
bool has_null_tokenizer(const PretrainConfig& c) { return c.tokenizer.tokenizer_type == "NullTokenizer"; }
bool has_buckets(const PretrainConfig& c) { return has_replicas(c) && c.parallel.overlap_grad_reduce; }

constexpr auto kDependents = std::to_array<Dependent>({
    {"rotary_base", "--position-embedding-type rope or yarn", rotates},
    {"rotary_percent", "--position-embedding-type rope or yarn", rotates},
    {"rotary_interleaved", "--position-embedding-type rope or yarn", rotates},
    {"no_rope_freq", "--position-embedding-type rope or yarn", rotates},
    {"rotary_seq_len_interpolation_factor", "--position-embedding-type rope", is_rope},
    {"use_rope_scaling", "--position-embedding-type rope", is_rope},
    {"rope_scaling_factor", "--use-rope-scaling",
     [](const PretrainConfig& c) { return c.transformer.use_rope_scaling; }},
    {"yarn_original_max_position_embeddings", "--position-embedding-type yarn", is_yarn},
    {"rotary_scaling_factor", "--position-embedding-type yarn", is_yarn},
    {"yarn_beta_fast", "--position-embedding-type yarn", is_yarn},
    {"yarn_beta_slow", "--position-embedding-type yarn", is_yarn},
    {"mscale", "--position-embedding-type yarn", is_yarn},
    {"mscale_all_dim", "--position-embedding-type yarn", is_yarn},
    {"yarn_correction_range_round_to_int", "--position-embedding-type yarn", is_yarn},
    {"cudnn_attention_dropout", "--attention-dropout above 0",
     [](const PretrainConfig& c) { return c.transformer.attention_dropout > 0; }},
    {"window_attn_skip_freq", "--window-size",
     [](const PretrainConfig& c) { return c.transformer.window_size.has_value(); }},
    {"glu_linear_offset", "--swiglu or --quick-geglu", is_gated},
    {"activation_func_clamp_value", "--swiglu or --quick-geglu", is_gated},
    {"recompute_method", "--recompute-granularity full", recomputes_layers},
    {"recompute_num_layers", "--recompute-granularity full", recomputes_layers},
    {"adam_beta1", "--optimizer adam", is_adam},
    {"adam_beta2", "--optimizer adam", is_adam},
    {"adam_eps", "--optimizer adam", is_adam},
    {"sgd_momentum", "--optimizer sgd", [](const PretrainConfig& c) { return !is_adam(c); }},
    {"loss_scale", "--fp16", scales_loss},
    {"initial_loss_scale", "--fp16 with a dynamic loss scale", scales_dynamically},
    {"min_loss_scale", "--fp16 with a dynamic loss scale", scales_dynamically},
    {"loss_scale_window", "--fp16 with a dynamic loss scale", scales_dynamically},
    {"hysteresis", "--fp16 with a dynamic loss scale", scales_dynamically},
    {"grad_reduce_in_bf16", "--bf16", [](const PretrainConfig& c) { return c.precision.bf16; }},
    {"lr_warmup_init", "a warm-up", warms_up},
    {"lr_wsd_decay_style", "--lr-decay-style WSD", is_wsd},
    {"lr_wsd_decay_iters", "--lr-decay-style WSD", is_wsd},
    {"lr_wsd_decay_samples", "--lr-decay-style WSD", is_wsd},
    {"decoupled_min_lr", "--decoupled-lr",
     [](const PretrainConfig& c) { return c.optimizer.decoupled_lr.has_value(); }},
    {"apply_wd_to_qk_layernorm", "--qk-layernorm", [](const PretrainConfig& c) { return c.transformer.qk_layernorm; }},
    {"eval_interval", "--eval-iters above 0, or --full-validation",
     [](const PretrainConfig& c) { return c.validation.evaluates(); }},
    {"start_eval_at_iter", "--eval-interval",
     [](const PretrainConfig& c) { return c.validation.eval_interval.has_value(); }},
    {"cuda_graph_impl", "more steps than --cuda-graph-warmup-steps", outlasts_graph_warm_up},
    {"cuda_graph_warmup_steps", "--cuda-graph-impl full_iteration",
     [](const PretrainConfig& c) { return c.cuda_graph.records(); }},
    {"exit_signal", "--exit-signal-handler", [](const PretrainConfig& c) { return c.training.exit_signal_handler; }},
    {"save_interval", "--save", saves},
    {"save_retain_interval", "--save", saves},
    {"no_save_optim", "--save", saves},
    {"no_save_rng", "--save", saves},
    {"ckpt_drop_redundant_extra_state", "--save", saves},
    {"dist_ckpt_optim_fully_reshardable", "--use-distributed-optimizer and --save",
     [](const PretrainConfig& c) { return c.optimizer.use_distributed_optimizer && saves(c); }},
    {"distrib_optim_fully_reshardable_mem_efficient", "--dist-ckpt-optim-fully-reshardable and --save",
     [](const PretrainConfig& c) { return c.checkpoint.dist_ckpt_optim_fully_reshardable && saves(c); }},
    {"no_load_optim", "--load", loads},
    {"dist_ckpt_strictness", "--load", loads},
    {"async_save", "--save", saves},
    {"async_ckpt_cpu_priority", "--async-save", saves_in_background},
    {"async_ckpt_io_priority", "--async-save", saves_in_background},
    {"dist_ckpt_workers", "--save", saves},
    {"non_persistent_save_interval", "--save", saves},
    {"non_persistent_global_ckpt_dir", "--non-persistent-ckpt-type",
     [](const PretrainConfig& c) { return c.checkpoint.non_persistent_ckpt_type.has_value(); }},
    {"ckpt_fully_parallel_load", "--load and more than one data-parallel rank",
     [](const PretrainConfig& c) { return loads(c) && has_replicas(c); }},
    {"verify_integrity", "--save or --load", [](const PretrainConfig& c) { return saves(c) || loads(c); }},
    {"ckpt_fully_parallel_save", "--save and more than one data-parallel rank",
     [](const PretrainConfig& c) { return saves(c) && has_replicas(c); }},
    {"load_main_params_from_ckpt", "--load or --pretrained-checkpoint",
     [](const PretrainConfig& c) { return c.checkpoint.load || c.checkpoint.pretrained_checkpoint; }},
    {"finetune", "--load", loads},
    {"override_ckpt_iteration", "--load", loads},
    {"override_opt_param_scheduler", "--load", loads},
    {"use_checkpoint_opt_param_scheduler", "--load", loads},
    {"profile_step_start", "--profile", profiles},
    {"profile_step_end", "--profile", profiles},
    {"profile_trace", "--profile", profiles},
    {"profile_ranks", "--profile or --nvtx-ranges",
     [](const PretrainConfig& c) { return c.profiling.profile || c.profiling.nvtx_ranges; }},
    {"disable_straggler_on_startup", "--log-straggler", logs_stragglers},
    {"straggler_ctrlr_port", "--log-straggler", logs_stragglers},
    {"straggler_minmax_count", "--log-straggler", logs_stragglers},
    {"error_injection_type", "--error-injection-rate",
     [](const PretrainConfig& c) { return c.faults.error_injection_rate > 0; }},
    {"check_weight_hash_across_dp_replicas_interval", "more than one data-parallel rank", has_replicas},
    {"tensorboard_log_interval", "--tensorboard-dir or --wandb-project",
     [](const PretrainConfig& c) { return has_tensorboard(c) || logs_to_wandb(c); }},
    {"log_timers_to_tensorboard", "--tensorboard-dir", has_tensorboard},
    {"log_loss_scale_to_tensorboard", "--tensorboard-dir", has_tensorboard},
    {"log_validation_ppl_to_tensorboard", "--tensorboard-dir", has_tensorboard},
    {"log_memory_to_tensorboard", "--tensorboard-dir", has_tensorboard},
    {"log_world_size_to_tensorboard", "--tensorboard-dir", has_tensorboard},
    {"wandb_exp_name", "--wandb-project", logs_to_wandb},
    {"wandb_save_dir", "--wandb-project", logs_to_wandb},
    {"wandb_entity", "--wandb-project", logs_to_wandb},
    {"data_sharding", "--dataloader-type cyclic", is_cyclic},
    {"vocab_file", "--tokenizer-type GPT2BPETokenizer, CharTokenizer or one of BERT", reads_vocab_file},
    {"merge_file", "--tokenizer-type GPT2BPETokenizer", has_bpe_tokenizer},
    {"tokenizer_model", "a tokenizer type that reads it", reads_tokenizer_model},
    {"tiktoken_pattern", "--tokenizer-type TikTokenizer", has_tiktoken},
    {"tiktoken_num_special_tokens", "--tokenizer-type TikTokenizer", has_tiktoken},
    {"tokenizer_hf_no_include_special_tokens", "--tokenizer-type HuggingFaceTokenizer or one of BERT",
     [](const PretrainConfig& c) { return has_tokenizer_json(c) || has_bert_tokenizer(c); }},
    {"tokenizer_sentencepiece_legacy", "a --tokenizer-type of SentencePiece", has_sentence_piece_tokenizer},
    {"tokenizer_sentencepiece_ignore_extra_whitespaces", "a --tokenizer-type of SentencePiece",
     has_sentence_piece_tokenizer},
    {"null_tokenizer_eod_id", "--tokenizer-type NullTokenizer", has_null_tokenizer},
    {"null_tokenizer_pad_id", "--tokenizer-type NullTokenizer", has_null_tokenizer},
    {"cp_comm_type", "--context-parallel-size above 1",
     [](const PretrainConfig& c) { return c.parallel.context_parallel_size > 1; }},
    {"account_for_embedding_in_pipeline_split", "--pipeline-model-parallel-size above 1", has_stages},
    {"account_for_loss_in_pipeline_split", "--pipeline-model-parallel-size above 1", has_stages},
    {"microbatch_group_size_per_vp_stage", "interleaved pipeline stages", is_interleaved},
    {"overlap_p2p_comm", "interleaved pipeline stages", is_interleaved},
    {"align_param_gather", "--overlap-param-gather and interleaved pipeline stages",
     [](const PretrainConfig& c) { return c.optimizer.overlap_param_gather && is_interleaved(c); }},
    {"ddp_pad_buckets_for_high_nccl_busbw", "--use-distributed-optimizer",
     [](const PretrainConfig& c) { return c.optimizer.use_distributed_optimizer; }},
    {"sequence_parallel", "--tensor-model-parallel-size above 1",
     [](const PretrainConfig& c) { return c.parallel.tensor_model_parallel_size > 1; }},
    {"tp_comm_overlap_ag", "--tp-comm-overlap", overlaps_tensor},
    {"tp_comm_overlap_rs", "--tp-comm-overlap", overlaps_tensor},
    {"tp_comm_overlap_rs_dgrad", "--tp-comm-overlap", overlaps_tensor},
    {"tp_comm_overlap_delay_wgrad", "--tp-comm-overlap", overlaps_tensor},
    {"tp_comm_overlap_ag_splits", "a --tp-comm-overlap that gathers", gathers_in_parts},
    {"tp_comm_overlap_rs_splits", "a --tp-comm-overlap that scatters", scatters_in_parts},
    {"expert_tensor_parallel_size", "a mixture of experts", never},
    {"decoder_seq_length", "an encoder", never},
    {"use_tp_pp_dp_mapping", "--pipeline-model-parallel-size above 1", has_stages},
    {"pipeline_schedule", "--pipeline-model-parallel-size above 1", has_stages},
    {"pipeline_model_parallel_layout", "--pipeline-model-parallel-size above 1", has_stages},
    {"overlap_grad_reduce", "more than one data-parallel rank", has_replicas},
    {"ddp_num_buckets", "--overlap-grad-reduce and more than one data-parallel rank", has_buckets},
    {"ddp_bucket_size", "--overlap-grad-reduce and more than one data-parallel rank", has_buckets},
    {"ddp_average_in_collective", "--no-calculate-per-token-loss and more than one data-parallel rank",
     [](const PretrainConfig& c) { return has_replicas(c) && !c.training.calculate_per_token_loss; }},
    {"distributed_timeout_minutes", "more than one rank",
     [](const PretrainConfig& c) { return c.parallel.world_size > 1; }},
    {"distributed_timeout_seconds_after_init", "more than one rank and training",
     [](const PretrainConfig& c) { return c.parallel.world_size > 1 && !c.validation.skip_train; }},
    {"multiple_validation_sets", "--valid-data-path or --per-split-data-args-path",
     [](const PretrainConfig& c) { return !c.data.valid_data_path.empty() || c.data.per_split_data_args_path; }},
    {"validation_set_names", "--multiple-validation-sets",
     [](const PretrainConfig& c) { return c.validation.multiple_validation_sets; }},
});

}  // namespace

std::span<const Difference> differences() { return kDifferences; }

std::vector<std::string> idle_settings(const PretrainConfig& config) {
  PretrainConfig copy = config;
  FieldTable table = describe(copy);
  std::vector<std::string> texts;
  for (const Dependent& dependent : kDependents) {
    const Field* field = table.find(dependent.name);
    require(field != nullptr, "there is no setting {}", dependent.name);
    if (!dependent.has_effect(config) && config.given.contains(dependent.name))
      texts.push_back(fmt::format("{} has no effect without {}", field->spelling(), dependent.needs));
  }
  return texts;
}

}  // namespace megatron
