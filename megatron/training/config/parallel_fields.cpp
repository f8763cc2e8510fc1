// Describes the split of work over ranks.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

constexpr double kMostRanks = 1e6;

void describe_sizes(FieldTable& table, PretrainConfig& config) {
  ParallelConfig& parallel = config.parallel;
  table.begin_group("Parallelism",
                    "tensor: cuts each matrix; pipeline: cuts the stack of layers; context: cuts the sequence; what is "
                    "left of the ranks is data parallel. The loss does not depend on the split beyond rounding.");
  table.add("tensor_model_parallel_size", parallel.tensor_model_parallel_size, "ranks that share a layer's matrices")
      .at_least(1)
      .at_most(kMostRanks)
      .known_as(
          "tp tp-size tp-degree tensor-parallel tensor-parallel-size tensor-parallelism tensor-model-parallel "
          "model-parallel");
  table.add("pipeline_model_parallel_size", parallel.pipeline_model_parallel_size, "stages of layers")
      .at_least(1)
      .at_most(kMostRanks)
      .known_as(
          "pp pp-size pp-degree pipeline-parallel pipeline-parallel-size pipeline-parallelism pipeline-model-parallel "
          "pipeline-stages num-stages stages");
  table.add("context_parallel_size", parallel.context_parallel_size, "ranks that share a sequence")
      .at_least(1)
      .at_most(kMostRanks)
      .cannot_run_where(
          [&config] { return config.parallel.context_parallel_size > 1 && config.cuda_graph.records(); },
          "--context-parallel-size with --cuda-graph-impl: what ranks send of their sequences is not recorded yet. "
          "Leave out --cuda-graph-impl")
      .differs({.megatron = "drops other attention probabilities on each number of ranks",
                .ours = "drops the same ones on any number of ranks: the loss depends on it by rounding alone",
                .in_force =
                    [&config] {
                      return config.parallel.context_parallel_size > 1 && config.transformer.attention_dropout > 0;
                    }})
      .known_as("cp cp-size context-parallel ulysses ring-attention");
  table.add("expert_model_parallel_size", parallel.expert_model_parallel_size, "ranks that share the experts")
      .at_least(1)
      .at_most(kMostRanks)
      .such_as("--num-experts 4 --expert-model-parallel-size 2")
      .known_as("ep ep-size expert-parallel expert-parallel-size experts");
  table
      .add("expert_tensor_parallel_size", parallel.expert_tensor_parallel_size, "ranks that share an expert's matrices")
      .by_default("--tensor-model-parallel-size")
      .at_least(1)
      .at_most(kMostRanks)
      .needs("--num-experts", [&config] { return config.experts.num_experts.value_or(0) > 0; })
      .known_as("etp etp-size expert-tensor-parallel expert-tp")
      .such_as("--num-experts 4 --disable-bias-linear --expert-tensor-parallel-size 2");
  table.add("sequence_parallel", parallel.sequence_parallel, "tensor-parallel ranks share norms and dropouts too")
      .needs("--tensor-model-parallel-size above 1",
             [&config] { return config.parallel.tensor_model_parallel_size > 1; })
      .known_as("sp")
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel");
  table
      .add(
          "cp_comm_type", config.transformer.cp_comm_type,
          "how context-parallel ranks share attention, for all layers or a word for each: keys travel in a ring (p2p), "
          "are gathered (all_gather), ranks share heads (a2a), or groups of such ranks form a ring (a2a+p2p)")
      .choice_also("allgather", "all_gather")
      .needs("--context-parallel-size above 1 or --hybrid-context-parallel",
             [&config] { return config.parallel.context_parallel_size > 1 || config.parallel.hybrid_context_parallel; })
      .differs({.megatron = "a2a needs at least as many key-value heads as ranks; attention sinks need a2a",
                .ours = "a2a takes fewer, which neighbouring ranks then share; sinks go with all_gather too"})
      .such_as("--context-parallel-size 2 --cp-comm-type a2a");
  table
      .add("hierarchical_context_parallel_sizes", parallel.hierarchical_context_parallel_sizes,
           "ranks that share heads, then ranks of the ring; their product is --context-parallel-size")
      .at_least(1)
      .at_most(kMostRanks)
      .such_as("--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2");
  const auto is_hybrid = [&config] { return config.parallel.hybrid_context_parallel; };
  table
      .add("hybrid_context_parallel", parallel.hybrid_context_parallel,
           "each document gets as many of the data- and context-parallel ranks as it needs, a power of two or all, and "
           "goes to those that have least to do")
      .differs({.megatron = "waits for all ranks between rounds of documents; needs --sft and an even number of ranks; "
                            "a micro-batch is one document",
                .ours = "ranks wait only for those with which they share a document; takes "
                        "--dataloader-inter-document-masking too, and any number of ranks; documents of one rank share "
                        "micro-batches, without tokens behind the last one that has a weight in the loss; evaluates "
                        "with --context-parallel-size ranks",
                .in_force = is_hybrid})
      .such_as(
          "--data-path data --dataloader-inter-document-masking --hybrid-context-parallel "
          "--max-seqlen-per-dp-cp-rank 4096 --nproc-per-node 2");
  table
      .add("max_seqlen_per_dp_cp_rank", parallel.max_seqlen_per_dp_cp_rank,
           "tokens of a document on a rank, above which it gets more ranks")
      .at_least(1)
      .needs("--hybrid-context-parallel", is_hybrid)
      .such_as(
          "--data-path data --dataloader-inter-document-masking --hybrid-context-parallel "
          "--max-seqlen-per-dp-cp-rank 4096 --nproc-per-node 2");
  table
      .add("use_tp_pp_dp_mapping", parallel.use_tp_pp_dp_mapping,
           "number ranks of a pipeline before those of data parallelism")
      .needs("--pipeline-model-parallel-size above 1", [&config] { return config.parallel.has_stages(); })
      .such_as("--pipeline-model-parallel-size 2 --use-tp-pp-dp-mapping");
  table
      .add("distributed_timeout_minutes", parallel.distributed_timeout_minutes,
           "before a collective or a send counts as failed")
      .in("minutes")
      .at_least(1)
      .needs("more than one rank", [&config] { return config.parallel.world_size > 1; });
  table
      .add("distributed_timeout_seconds_after_init", parallel.distributed_timeout_seconds_after_init,
           "the same from the end of the first iteration on")
      .by_default("--distributed-timeout-minutes")
      .in("seconds")
      .at_least(1)
      .needs("more than one rank and training",
             [&config] { return config.parallel.world_size > 1 && !config.validation.skip_train; });
  table.add_derived("world_size", parallel.world_size, "ranks");
  table.add_derived("data_parallel_size", parallel.data_parallel_size, "ranks / (tensor * pipeline * context)")
      .sets_sample_order();
}

void describe_tensor_overlap(FieldTable& table, PretrainConfig& config) {
  ParallelConfig& parallel = config.parallel;
  table.begin_group(
      "Overlap in tensor parallelism",
      "Under sequence parallelism the rows of a layer's input are gathered, and those of its output "
      "scattered, while rows that are there are multiplied. On the CPU no bit of an fp64 result depends on it; others "
      "change by rounding, as oneDNN may add up the terms of a row in another order where there are fewer rows.");
  table
      .add("tp_comm_overlap", parallel.tp_comm_overlap,
           "multiply rows in parts that come and go meanwhile; needs --sequence-parallel")
      .differs({.megatron = "needs Transformer Engine, MPI or another way to meet for its buffers, and settings for "
                            "each matmul (--tp-comm-overlap-cfg)",
                .ours = "needs neither, and runs on any device: collectives of the ordinary group in parts "
                        "(--tp-comm-overlap-ag-splits, -rs-splits)",
                .in_force = [&config] { return config.parallel.tp_comm_overlap; }})
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap");
  table.add("tp_comm_overlap_ag", parallel.tp_comm_overlap_ag, "gather rows before a matmul, not while it runs")
      .turned_off_by({"--no-tp-comm-overlap-ag", "--disable-tp-comm-overlap-ag"})
      .needs("--tp-comm-overlap", [&config] { return config.parallel.tp_comm_overlap; })
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --no-tp-comm-overlap-ag");
  table.add("tp_comm_overlap_rs", parallel.tp_comm_overlap_rs, "scatter rows after a matmul, not while it runs")
      .turned_off_by({"--no-tp-comm-overlap-rs", "--disable-tp-comm-overlap-rs"})
      .needs("--tp-comm-overlap", [&config] { return config.parallel.tp_comm_overlap; })
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --no-tp-comm-overlap-rs");
  table
      .add("tp_comm_overlap_rs_dgrad", parallel.tp_comm_overlap_rs_dgrad,
           "scatter the gradient of a layer's input while it is made, not only while the weight's is")
      .needs("--tp-comm-overlap", [&config] { return config.parallel.tp_comm_overlap; })
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --tp-comm-overlap-rs-dgrad");
  table
      .add("tp_comm_overlap_ag_splits", parallel.tp_comm_overlap_ag_splits,
           "megatron.cpp only: parts of each rank's rows that are gathered while own rows, and others, are multiplied")
      .at_least(1)
      .needs("a --tp-comm-overlap that gathers",
             [&config] { return config.parallel.tp_comm_overlap && config.parallel.tp_comm_overlap_ag; })
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --tp-comm-overlap-ag-splits 2");
  table
      .add("tp_comm_overlap_rs_splits", parallel.tp_comm_overlap_rs_splits,
           "megatron.cpp only: parts of each rank's rows that are scattered while the next is multiplied; few hide "
           "less, many send small messages slowly")
      .at_least(1)
      .needs("a --tp-comm-overlap that scatters",
             [&config] {
               return config.parallel.tp_comm_overlap &&
                      (config.parallel.tp_comm_overlap_rs || config.parallel.tp_comm_overlap_rs_dgrad);
             })
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --tp-comm-overlap-rs-splits 4");
  table
      .add("tp_comm_overlap_delay_wgrad", parallel.tp_comm_overlap_delay_wgrad,
           "megatron.cpp only: hide what a layer gathers and scatters in backward behind the weight gradients of the "
           "layer above it, whose input and output gradient live until then")
      .needs("--tp-comm-overlap", [&config] { return config.parallel.tp_comm_overlap; })
      .such_as("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --tp-comm-overlap-delay-wgrad");
}

void describe_pipeline(FieldTable& table, PretrainConfig& config) {
  ParallelConfig& parallel = config.parallel;
  table.begin_group("Pipeline", "Interleaving gives each rank several virtual stages, which shortens the bubble.");
  table
      .add("pipeline_schedule", parallel.pipeline_schedule,
           "megatron.cpp only: order of work on the stages; 'megatron plan --show-schedule --help' describes each. "
           "interleaved has two virtual stages unless others are given")
      .by_default("1f1b, with virtual stages interleaved")
      .needs("--pipeline-model-parallel-size above 1", [&config] { return config.parallel.has_stages(); })
      .such_as("--pipeline-model-parallel-size 2 --global-batch-size 16 --pipeline-schedule zb-h1");
  table
      .add("num_layers_per_virtual_pipeline_stage", parallel.num_layers_per_virtual_pipeline_stage,
           "interleave: layers of a stage")
      .at_least(1)
      .such_as("--pipeline-model-parallel-size 2 --global-batch-size 16 --num-layers-per-virtual-pipeline-stage 1");
  table
      .add("num_virtual_stages_per_pipeline_rank", parallel.num_virtual_stages_per_pipeline_rank,
           "interleave: stages of a rank")
      .also({"--virtual-pipeline-model-parallel-size"})
      .at_least(1)
      .at_most(kMostRanks)
      .differs({.megatron = "does not check it against --num-layers, and builds fewer layers",
                .ours = "rejected if the layers do not divide"})
      .known_as("vp vpp vpp-size virtual-stages num-virtual-stages virtual-pipeline virtual-pipeline-size")
      .such_as("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 16");
  table
      .add("decoder_first_pipeline_num_layers", parallel.decoder_first_pipeline_num_layers, "layers of the first stage")
      .at_least(1)
      .differs({.megatron = "accepts some numbers, such as 2 and 1 of 4 layers, and builds the first's alone",
                .ours = "rejected: they name two ranks, but there is one",
                .topic = "--decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers with one stage"})
      .such_as("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1");
  table.add("decoder_last_pipeline_num_layers", parallel.decoder_last_pipeline_num_layers, "layers of the last stage")
      .at_least(1)
      .such_as("--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 1");
  table
      .add("account_for_embedding_in_pipeline_split", parallel.account_for_embedding_in_pipeline_split,
           "count the embedding as a layer of the first stage")
      .needs("--pipeline-model-parallel-size above 1", [&config] { return config.parallel.has_stages(); })
      .such_as("--num-layers 7 --pipeline-model-parallel-size 2 --account-for-embedding-in-pipeline-split");
  table
      .add("account_for_loss_in_pipeline_split", parallel.account_for_loss_in_pipeline_split,
           "count output layer and loss as a layer of the last stage")
      .needs("--pipeline-model-parallel-size above 1", [&config] { return config.parallel.has_stages(); })
      .such_as("--num-layers 7 --pipeline-model-parallel-size 2 --account-for-loss-in-pipeline-split");
  table
      .add("pipeline_model_parallel_layout", parallel.pipeline_model_parallel_layout,
           "layers of each virtual stage, such as 'Et*3|t*4|t*4|ttL': | ends a stage, E is the embedding, t a layer, L "
           "the loss, *2 repeats, as (tt|)*3 does")
      .needs("--pipeline-model-parallel-size above 1", [&config] { return config.parallel.has_stages(); })
      .such_as("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*2|t*2L");
  table
      .add("microbatch_group_size_per_vp_stage", parallel.microbatch_group_size_per_vp_stage,
           "micro-batches in a row on one virtual stage")
      .by_default("the number of stages")
      .named({"--microbatch-group-size-per-virtual-pipeline-stage"})
      .at_least(1)
      .needs("interleaved pipeline stages", [&config] { return config.parallel.is_interleaved(); })
      .such_as(
          "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 16 "
          "--microbatch-group-size-per-virtual-pipeline-stage 4");
  table
      .add("overlap_p2p_comm", parallel.overlap_p2p_comm,
           "no overlap of sends with work; rejected where there are virtual stages, whose sends always overlap")
      .turned_off_by({"--no-overlap-p2p-communication"})
      .needs("interleaved pipeline stages", [&config] { return config.parallel.is_interleaved(); })
      .cannot_run_where([&config] { return config.parallel.is_interleaved() && !config.parallel.overlap_p2p_comm; },
                        "--no-overlap-p2p-communication with virtual stages: sends always overlap with work. Leave out "
                        "--no-overlap-p2p-communication")
      .differs({.megatron = "move sends of virtual stages in time",
                .ours =
                    "rejected where there are virtual stages: sends always overlap with work, and all stages gather "
                    "weights right after the step",
                .topic = "--no-overlap-p2p-communication, --no-align-param-gather"})
      .such_as(
          "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication");
  table.add_derived("virtual_pipeline_model_parallel_size", parallel.virtual_pipeline_model_parallel_size,
                    "stages of a rank");
}

void describe_data_parallel(FieldTable& table, PretrainConfig& config) {
  ParallelConfig& parallel = config.parallel;
  OptimizerConfig& optimizer = config.optimizer;
  table.begin_group("Data parallelism",
                    "--use-distributed-optimizer keeps each part of the optimizer's state on one rank only (ZeRO-1).");
  table.add("use_distributed_optimizer", optimizer.use_distributed_optimizer, "split the optimizer's state")
      .differs({.megatron = "stores buckets, which fit the same tensor and pipeline sizes alone",
                .ours = "stores the optimizer's state as whole tensors: any layout loads it, as with "
                        "--dist-ckpt-optim-fully-reshardable; --dist-ckpt-optim-form dp_reshardable stores buckets, "
                        "which any layout loads here too",
                .in_force =
                    [&config] {
                      return config.optimizer.use_distributed_optimizer && config.checkpoint.saves() &&
                             !config.checkpoint.no_save_optim;
                    },
                .topic = "--use-distributed-optimizer --save"})
      .known_as("zero zero1 zero-1 zero-stage distributed-optimizer")
      .known_as("fsdp use-fsdp zero2 zero-2 zero3 zero-3", "the state of the optimizer is cut, not the weights");
  table
      .add("num_distributed_optimizer_instances", parallel.num_distributed_optimizer_instances,
           "copies of the split state")
      .at_least(1)
      .such_as("--use-distributed-optimizer --num-distributed-optimizer-instances 2");
  table.add("overlap_grad_reduce", parallel.overlap_grad_reduce, "sum gradients while the backward pass goes on")
      .needs("more than one data- or context-parallel rank", [&config] { return config.parallel.has_replicas(); })
      .differs({.megatron = "starts sums of interleaved stages at the same moment, unless --no-align-grad-reduce",
                .ours = "a sum starts when its gradients are complete, on each stage, as with --no-align-grad-reduce",
                .in_force = [&config] {
                  return config.parallel.overlap_grad_reduce && config.parallel.align_grad_reduce &&
                         config.parallel.is_interleaved() && config.parallel.data_parallel_size > 1;
                }});
  table
      .add("overlap_param_gather", optimizer.overlap_param_gather,
           "gather weights while the forward pass goes on; needs --use-distributed-optimizer --overlap-grad-reduce")
      .such_as("--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather");
  table.add_on("align_grad_reduce", parallel.align_grad_reduce, "")
      .without_effect("always so: a sum starts when its gradients are complete, on each stage");
  table
      .add(
          "align_param_gather", parallel.align_param_gather,
          "start weight gathers apart on pipeline stages; rejected where there are virtual stages: all start after the "
          "step")
      .turned_off_by({"--no-align-param-gather"})
      .needs("--overlap-param-gather and interleaved pipeline stages",
             [&config] { return config.optimizer.overlap_param_gather && config.parallel.is_interleaved(); })
      .cannot_run_where(
          [&config] {
            return config.parallel.is_interleaved() && config.optimizer.overlap_param_gather &&
                   !config.parallel.align_param_gather;
          },
          "--no-align-param-gather with virtual stages: all stages gather weights right after the step. Leave out "
          "--no-align-param-gather")
      .such_as(
          "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --use-distributed-optimizer "
          "--overlap-grad-reduce --overlap-param-gather --no-align-param-gather");
  table.add("ddp_num_buckets", parallel.ddp_num_buckets, "buckets of gradients")
      .at_least(1)
      .needs("--overlap-grad-reduce and more than one data-parallel rank",
             [&config] { return config.parallel.has_replicas() && config.parallel.overlap_grad_reduce; })
      .such_as("--overlap-grad-reduce --ddp-num-buckets 4");
  table.add("ddp_bucket_size", parallel.ddp_bucket_size, "gradients of a bucket")
      .at_least(1)
      .needs("--overlap-grad-reduce and more than one data-parallel rank",
             [&config] { return config.parallel.has_replicas() && config.parallel.overlap_grad_reduce; })
      .such_as("--overlap-grad-reduce --ddp-bucket-size 1000000");
  table
      .add("ddp_pad_buckets_for_high_nccl_busbw", parallel.ddp_pad_buckets_for_high_nccl_busbw,
           "pad buckets of the distributed optimizer to multiples of 2^16 elements")
      .needs("--use-distributed-optimizer", [&config] { return config.optimizer.use_distributed_optimizer; })
      .such_as("--use-distributed-optimizer --ddp-pad-buckets-for-high-nccl-busbw");
  table
      .add("ddp_average_in_collective", parallel.ddp_average_in_collective,
           "let the collective average, instead of scaling before it")
      .needs("--no-calculate-per-token-loss and more than one data-parallel rank",
             [&config] { return config.parallel.has_replicas() && !config.training.calculate_per_token_loss; })
      .such_as("--no-calculate-per-token-loss --ddp-average-in-collective");
}

}  // namespace

void describe_parallel(FieldTable& table, PretrainConfig& config) {
  describe_sizes(table, config);
  describe_tensor_overlap(table, config);
  describe_pipeline(table, config);
  describe_data_parallel(table, config);
}

}  // namespace megatron
