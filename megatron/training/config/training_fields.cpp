// Batches, duration, precision, evaluation, launch.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

// Products with batch sizes and sequence lengths stay within 63 bits.
constexpr double kMostIterations = 1e9;
// More would exhaust the host's memory by their stacks.
constexpr double kMostThreads = 4096;
constexpr double kMostRanksHere = 1024;

void describe_batches(FieldTable& table, PretrainConfig& config) {
  TrainingConfig& training = config.training;
  table.begin_group(
      "Batches and duration",
      "A step trains on --global-batch-size sequences, in micro-batches of --micro-batch-size. Say how long either in "
      "steps or in samples: --micro-batch-size 4 --global-batch-size 32 --train-iters 1000");
  table.add("micro_batch_size", training.micro_batch_size, "sequences of one forward and backward pass; required")
      .at_least(1)
      .sets_sample_order()
      .known_as("batch batch-size bs bsz train-batch-size", "the sequences of one pass, and those of a step")
      .known_as("mbs micro-batch microbatch microbatch-size per-device-train-batch-size per-gpu-batch-size");
  table.add("global_batch_size", training.global_batch_size, "sequences of a step")
      .by_default("one micro-batch per data-parallel rank")
      .at_least(1)
      .known_as("batch batch-size bs bsz train-batch-size", "the sequences of one pass, and those of a step")
      .known_as("gbs global-batch total-batch-size")
      .known_as(
          "num-microbatches microbatches micro-batches gradient-accumulation-steps grad-accumulation-steps "
          "accumulation-steps grad-accum gradient-accumulation",
          "a step has as many micro-batches as --global-batch-size / (--micro-batch-size * data-parallel size)");
  table.add("decrease_batch_size_if_needed", training.decrease_batch_size_if_needed,
            "round a global batch down to whole micro-batches on all ranks");
  table
      .add(
          "step_batch_size_schedule", training.step_batch_size_schedule,
          "instead of --global-batch-size: TOKENS:BATCH entries, such as '0:768 250B:1536'; K, M, B, T are 1e3 to 1e12")
      .differs(
          {.megatron = "fails in the middle of the run at a batch that does not divide, or that is smaller than before",
           .ours = "rejected at start"})
      .differs({.megatron = "counts --micro-batch-size times data-parallel size samples for an iteration of the "
                            "learning rate's schedule, which may so end early",
                .ours = "the same, and the banner says at which iteration it ends",
                .topic = "--step-batch-size-schedule --train-iters"})
      .such_as("--step-batch-size-schedule 0:4");
  table
      .add(
          "rampup_batch_size", training.rampup_batch_size,
          "START INCREMENT SAMPLES: begin with batches of START, and add INCREMENT in equal parts of the first SAMPLES "
          "samples up to --global-batch-size")
      .exactly(3)
      .at_least(1)
      .at_most(kMostSamples)
      .differs({.megatron = "accepts it and ignores it since 0.17",
                .ours = "ramps as Megatron-LM 0.16 did: a schedule in iterations counts --global-batch-size samples "
                        "for each, so the learning rate decays less far than the run is long",
                .in_force = [&config] { return !config.training.rampup_batch_size.empty(); }})
      .such_as("--rampup-batch-size 4 2 100 --global-batch-size 16");
  table.add("train_iters", training.train_iters, "steps")
      .at_least(1)
      .at_most(kMostIterations)
      .known_as("epochs epoch num-epochs n-epochs nepochs max-epochs num-train-epochs train-epochs",
                "a run is as long as its steps or samples; epochs are not counted")
      .known_as(
          "steps num-steps n-steps max-steps train-steps total-steps iters num-iters max-iters n-iters niters "
          "iterations num-iterations max-iterations train-iterations");
  table.add("train_samples", training.train_samples, "sequences, instead of --train-iters")
      .at_least(1)
      .at_most(kMostSamples)
      .known_as("epochs epoch num-epochs n-epochs nepochs max-epochs num-train-epochs train-epochs",
                "a run is as long as its steps or samples; epochs are not counted")
      .known_as("train-size max-samples num-samples")
      .known_as("tokens train-tokens num-train-tokens total-tokens",
                "--train-samples counts samples of --seq-length tokens");
  table.add("iterations_to_skip", training.iterations_to_skip, "steps whose batch is read and dropped")
      .at_least(1)
      .for_whole_runs();
  table
      .add("phase_transition_iterations", training.phase_transition_iterations,
           "iterations with commas between them after which the run saves and exits; samples are drawn for each phase "
           "between them alone, so that the next phase may have other data")
      .for_whole_runs()
      .such_as("--phase-transition-iterations 2,4");
  table.add("exit_interval", training.exit_interval, "save and exit after steps divisible by it")
      .at_least(1)
      .for_whole_runs();
  table.add("exit_duration_in_mins", training.exit_duration_in_mins, "save and exit after this time")
      .in("minutes")
      .at_least(1)
      .for_whole_runs()
      .known_as("max-time time-limit max-minutes");
  table
      .add("exit_signal_handler", training.exit_signal_handler,
           "save and exit on --exit-signal, which ends the program at once before the first step")
      .for_whole_runs();
  table.add("exit_signal", training.exit_signal, "which signal")
      .one_of({"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"})
      .later({"SIGHUP",  "SIGQUIT", "SIGILL",  "SIGTRAP",   "SIGABRT", "SIGBUS",    "SIGFPE",  "SIGKILL",
              "SIGSEGV", "SIGPIPE", "SIGALRM", "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",
              "SIGTTIN", "SIGTTOU", "SIGURG",  "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH",
              "SIGIO",   "SIGPWR",  "SIGSYS",  "SIGRTMIN",  "SIGRTMAX"})
      .for_whole_runs()
      .needs("--exit-signal-handler", [&config] { return config.training.exit_signal_handler; })
      .such_as("--exit-signal-handler --exit-signal SIGUSR1");
  table.add("seed", training.seed, "of weights, dropout and data order")
      .at_least(0)
      .at_most(kLargestSeed)
      .known_as("random-seed rng-seed");
  table
      .add("calculate_per_token_loss", training.calculate_per_token_loss,
           "weigh every valid token of a step equally, so that gradients do not depend on the layout. Turned off, each "
           "micro-batch weighs the same however many valid tokens it has, as Megatron's default does")
      .also_turned_off_by("--no-calculate-per-token-loss")
      .differs({.megatron =
                    "averages micro-batch means: how sequences fall into micro-batches and ranks changes the gradient",
                .ours = "every valid token of a step weighs equally (--calculate-per-token-loss is the default), so "
                        "the gradient does not depend on the layout; --no-calculate-per-token-loss gives Megatron's",
                .in_force = [&config] { return config.training.calculate_per_token_loss; },
                .topic = "loss"})
      .differs({.megatron = "its default, without such a flag",
                .ours = "averages micro-batch means as Megatron does: the gradient depends on the layout",
                .in_force = [&config] { return !config.training.calculate_per_token_loss; },
                .topic = "--no-calculate-per-token-loss"});
  table.add("check_for_nan_in_loss_and_grad", training.check_for_nan_in_loss_and_grad, "go on after NaN or infinity")
      .turned_off_by({"--no-check-for-nan-in-loss-and-grad"});
}

void describe_number_formats(FieldTable& table, PretrainConfig& config) {
  PrecisionConfig& precision = config.precision;
  table.begin_group("Precision",
                    "None of the first three: fp32. bf16 and fp16 keep fp32 main weights in the optimizer, "
                    "unless --main-params-dtype bf16.");
  table.add("bf16", precision.bf16, "weights and activations in bfloat16")
      .known_as("precision dtype mixed-precision amp")
      .known_as("bfloat16")
      .known_as("fp32 float32", "without either, weights are fp32");
  table.add("fp16", precision.fp16, "weights and activations in float16, with loss scaling")
      .known_as("precision dtype mixed-precision amp")
      .known_as("float16 half")
      .known_as("fp32 float32", "without either, weights are fp32");
  table.add("fp64", precision.fp64,
            "weights and activations in float64 (megatron.cpp only): to verify that layouts agree");
  table
      .add("accumulate_allreduce_grads_in_fp32", precision.accumulate_allreduce_grads_in_fp32,
           "sum gradients in fp32; --bf16 turns it on unless --grad-reduce-in-bf16 is given")
      .differs({.megatron = "sums gradients of fp16 in fp32, which it sums in fp16 otherwise",
                .ours = "has no effect: gradients are summed in fp32 anyway, except with --grad-reduce-in-bf16 and "
                        "--main-grads-dtype bf16, which exclude it",
                .in_force = [&config] { return config.given.contains("accumulate_allreduce_grads_in_fp32"); }});
  table.add("grad_reduce_in_bf16", precision.grad_reduce_in_bf16, "reduce gradients in bfloat16")
      .needs("--bf16", [&config] { return config.precision.bf16; })
      .such_as("--bf16 --grad-reduce-in-bf16");
  table.add("fp16_lm_cross_entropy", precision.fp16_lm_cross_entropy, "logits and loss in float16; needs --fp16")
      .not_supported_yet("the loss is computed from fp32 logits");
  table
      .add("float32_matmul_precision", precision.float32_matmul_precision,
           "of fp32 training on a GPU (megatron.cpp only, named as PyTorch's function): high multiplies in TF32, with "
           "10 bits of mantissa and some 7 times the rate of highest; sums, norms, softmax and weights stay fp32")
      .known_as("tf32 allow-tf32", "its value is high");
}

void describe_validation(FieldTable& table, PretrainConfig& config) {
  ValidationConfig& validation = config.validation;
  table
      .begin_group("Evaluation",
                   "With --eval-interval 100, the loss of --eval-iters validation batches every 100 steps; with "
                   "--eval-iters above 0 also after the last step, on validation and test data.")
      .for_whole_runs();
  table.add("eval_iters", validation.eval_iters, "batches of an evaluation")
      .at_least(0)
      .at_most(kMostIterations)
      .known_as("eval-batches val-iters");
  table.add("eval_interval", validation.eval_interval, "steps between evaluations")
      .by_default("not during training")
      .at_least(1)
      .needs("--eval-iters above 0, or --full-validation", [&config] { return config.validation.evaluates(); })
      .differs({.megatron = "fails while it builds datasets if --eval-interval is not given",
                .ours = "without --eval-interval there is no evaluation during training",
                .in_force =
                    [&config] {
                      return !config.validation.eval_interval && !config.validation.skip_train &&
                             config.validation.evaluates();
                    },
                .topic = "evaluation"})
      .known_as("eval-every eval-steps eval-freq val-interval validation-interval");
  table.add("start_eval_at_iter", validation.start_eval_at_iter, "no evaluation before this step")
      .at_least(0)
      .needs("--eval-interval", [&config] { return config.validation.eval_interval.has_value(); })
      .such_as("--eval-interval 100 --start-eval-at-iter 1000");
  table.add("eval_global_batch_size", validation.eval_global_batch_size, "sequences of an evaluation batch")
      .by_default("as in training")
      .at_least(1);
  table.add("eval_micro_batch_size", validation.eval_micro_batch_size, "sequences of a pass")
      .by_default("as in training")
      .at_least(1);
  table.add("full_validation", validation.full_validation, "evaluate on the whole validation set")
      .differs({.megatron = "evaluates 100,000 made-up documents",
                .ours = "rejected: made-up data have no size",
                .topic = "--full-validation --mock-data"})
      .such_as("--data-path data --full-validation");
  table.add("multiple_validation_sets", validation.multiple_validation_sets, "report each validation set apart")
      .needs("--valid-data-path or --per-split-data-args-path",
             [&config] { return !config.data.valid_data_path.empty() || config.data.per_split_data_args_path; })
      .such_as(
          "--train-data-path train --valid-data-path one two --test-data-path test --full-validation "
          "--multiple-validation-sets");
  table.add("validation_set_names", validation.validation_set_names, "their names, in the order of the data paths")
      .needs("--multiple-validation-sets", [&config] { return config.validation.multiple_validation_sets; })
      .such_as(
          "--train-data-path train --valid-data-path one two --test-data-path test --full-validation "
          "--multiple-validation-sets --validation-set-names web books");
  table.add("skip_train", validation.skip_train, "evaluate only");
}

void describe_cuda_graph(FieldTable& table, PretrainConfig& config) {
  CudaGraphConfig& graph = config.cuda_graph;
  const auto outlasts_warm_up = [&config] {
    const int64_t num_steps = config.validation.skip_train ? 0 : config.training.train_iters.value_or(0);
    return !config.cuda_graph.records() || num_steps > config.cuda_graph.warmup_steps;
  };
  table.begin_group("CUDA graphs",
                    "Where a step of a small model has so many small kernels that the host cannot keep a GPU busy: "
                    "--cuda-graph-impl full_iteration. Losses and weights have the same bits with and without.");
  table
      .add(
          "cuda_graph_impl", graph.impl,
          "full_iteration: record forward and backward of all micro-batches of a step once, and launch them by one "
          "call; the optimizer is launched apart. Not with pipelines, documents that --reset-attention-mask or "
          "--reset-position-ids tell apart, --timing-log-level 2, --nvtx-ranges without --profile, nor --profile-ranks "
          "of several. Steps of --profile run op by op. For --distributed-timeout-* a launch is one collective, which "
          "takes as long as the step")
      .later({"local", "transformer_engine"})
      .needs("more steps than --cuda-graph-warmup-steps", outlasts_warm_up)
      .cannot_run_where([&config] { return config.cuda_graph.records() && config.parallel.has_stages(); },
                        "--cuda-graph-impl with --pipeline-model-parallel-size above 1: ranks whose graphs differ may "
                        "wait for each other. Leave out --cuda-graph-impl")
      .cannot_run_where(
          [&config] {
            return config.cuda_graph.records() && config.parallel.world_size > 1 &&
                   !config.profiling.profile_ranks.empty();
          },
          "--cuda-graph-impl with --profile-ranks: ranks launch their graphs in the same steps, and those that are "
          "profiled run op by op. Leave out --profile-ranks")
      .cannot_run_where(
          [&config] { return config.cuda_graph.records() && config.data.has_documents(); },
          "--cuda-graph-impl with --reset-attention-mask, --reset-position-ids, --dataloader-inter-document-masking or "
          "--sft: a recorded step has as many documents as when it was recorded. Leave out --cuda-graph-impl")
      .cannot_run_where(
          [&config] {
            return config.cuda_graph.records() && config.profiling.nvtx_ranges && !config.profiling.profile;
          },
          "--cuda-graph-impl with --nvtx-ranges: steps with ranges run op by op, and without --profile these are all. "
          "Add --profile, or leave out one")
      .cannot_run_where([&config] { return config.cuda_graph.records() && config.logging.timing_log_level > 1; },
                        "--cuda-graph-impl with --timing-log-level 2: nothing inside of a graph has a time of its own. "
                        "Give --timing-log-level 1")
      .cannot_run_where(
          [&config] { return config.cuda_graph.records() && config.faults.log_straggler; },
          "--cuda-graph-impl with --log-straggler: nothing inside of a graph has a time of its own. Leave out one")
      .differs({.megatron = "needs --no-check-for-nan-in-loss-and-grad; is recorded once",
                .ours = "looks at loss and gradient norm at the end of every step all the same; is recorded again "
                        "where the number of micro-batches changes",
                .in_force = [&config] { return config.cuda_graph.records(); },
                .topic = "--cuda-graph-impl full_iteration"});
  table
      .add("cuda_graph_warmup_steps", graph.warmup_steps,
           "steps that run op by op before one is recorded; again where the global batch changes")
      .at_least(1)
      .at_most(kMostIterations)
      .needs("--cuda-graph-impl full_iteration", [&config] { return config.cuda_graph.records(); })
      .such_as("--cuda-graph-impl full_iteration --cuda-graph-warmup-steps 5");
}

void describe_launch(FieldTable& table, PretrainConfig& config) {
  LaunchConfig& launch = config.launch;
  table.begin_group("Launch",
                    "megatron.cpp only. mpirun and srun start ranks as processes; then leave --nproc-per-node out.");
  table
      .add("nproc_per_node", launch.nproc_per_node,
           "ranks to start here: threads of this process, or a process for each GPU")
      .by_default("one")
      .named({"--nproc-per-node", "--nproc_per_node"})
      .at_least(1)
      .at_most(kMostRanksHere)
      .differs_between_hosts()
      .counts_ranks()
      .known_as("dp dp-size dp-degree data-parallel data-parallel-size data-parallelism",
                "data parallelism has the ranks that tensor and pipeline parallelism leave")
      .known_as(
          "gpus num-gpus n-gpus ngpus gpus-per-node num-gpus-per-node ranks num-ranks world-size nproc np "
          "num-processes devices num-devices");
  table
      .add("nnodes", launch.nnodes,
           "hosts, as scripts give it to torchrun; above 1 only where a launcher has started the ranks")
      .at_least(1)
      .counts_ranks();
  table.add("num_threads", launch.num_threads, "threads of a rank")
      .by_default("cores / ranks of this machine")
      .at_least(1)
      .at_most(kMostThreads)
      .differs_between_hosts()
      .known_as("threads nthreads n-threads omp-num-threads");
  table.add("device", launch.device, "what computes")
      .by_default("a GPU where one answers and can run this, else the CPU")
      .one_of({"cpu", "cuda"})
      .differs_between_hosts()
      .differs(
          {.megatron = "trains on GPUs alone",
           .ours =
               "cpu or cuda; without it a GPU where one answers and can run this, else the CPU: the banner says which",
           .in_force = [&config] { return !config.launch.device; }})
      .known_as("gpu cuda cpu use-cuda use-cpu", "its value is cpu or cuda");
  table
      .add("matmul_choices", launch.matmul_choices,
           "file of algorithms for matmuls on the GPU that 'megatron bench gemm --tune' has measured; 'none': "
           "the library's own choice")
      .by_default("benchmarks/tuned/GPU.json near the program, where it is");
}

}  // namespace

void describe_training(FieldTable& table, PretrainConfig& config) {
  describe_batches(table, config);
  describe_number_formats(table, config);
  describe_validation(table, config);
  describe_cuda_graph(table, config);
  describe_launch(table, config);
}

}  // namespace megatron
