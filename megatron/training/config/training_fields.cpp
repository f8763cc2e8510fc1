// Batches, duration, precision, evaluation, launch.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

// Products with batch sizes and sequence lengths stay within 63 bits.
constexpr double kMostIterations = 1e9;
// More would exhaust the host's memory by their stacks.
constexpr double kMostThreads = 4096;
constexpr double kMostRanksHere = 1024;

void describe_batches(FieldTable& table, TrainingConfig& training) {
  table.begin_group(
      "Batches and duration",
      "A step trains on --global-batch-size sequences, in micro-batches of --micro-batch-size. Say how long either in "
      "steps or in samples: --micro-batch-size 4 --global-batch-size 32 --train-iters 1000");
  table.add("micro_batch_size", training.micro_batch_size, "sequences of one forward and backward pass; required")
      .at_least(1);
  table.add("global_batch_size", training.global_batch_size, "sequences of a step")
      .by_default("one micro-batch per data-parallel rank")
      .at_least(1);
  table.add("decrease_batch_size_if_needed", training.decrease_batch_size_if_needed,
            "round a global batch down to whole micro-batches on all ranks");
  table.add(
      "step_batch_size_schedule", training.step_batch_size_schedule,
      "instead of --global-batch-size: TOKENS:BATCH entries, such as '0:768 250B:1536'; K, M, B, T are 1e3 to 1e12");
  table
      .add(
          "rampup_batch_size", training.rampup_batch_size,
          "START INCREMENT SAMPLES: begin with batches of START, and add INCREMENT in equal parts of the first SAMPLES "
          "samples up to --global-batch-size")
      .exactly(3)
      .at_least(1)
      .at_most(kMostSamples);
  table.add("train_iters", training.train_iters, "steps").at_least(1).at_most(kMostIterations);
  table.add("train_samples", training.train_samples, "sequences, instead of --train-iters")
      .at_least(1)
      .at_most(kMostSamples);
  table.add("iterations_to_skip", training.iterations_to_skip, "steps whose batch is read and dropped").at_least(1);
  table.add("exit_interval", training.exit_interval, "save and exit after steps divisible by it").at_least(1);
  table.add("exit_duration_in_mins", training.exit_duration_in_mins, "save and exit after this time")
      .in("minutes")
      .at_least(1);
  table.add("exit_signal_handler", training.exit_signal_handler,
            "save and exit on --exit-signal, which ends the program at once before the first step");
  table.add("exit_signal", training.exit_signal, "which signal")
      .one_of({"SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"})
      .later({"SIGHUP",  "SIGQUIT", "SIGILL",  "SIGTRAP",   "SIGABRT", "SIGBUS",    "SIGFPE",  "SIGKILL",
              "SIGSEGV", "SIGPIPE", "SIGALRM", "SIGSTKFLT", "SIGCHLD", "SIGCONT",   "SIGSTOP", "SIGTSTP",
              "SIGTTIN", "SIGTTOU", "SIGURG",  "SIGXCPU",   "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH",
              "SIGIO",   "SIGPWR",  "SIGSYS",  "SIGRTMIN",  "SIGRTMAX"});
  table.add("seed", training.seed, "of weights, dropout and data order").at_least(0).at_most(kLargestSeed);
  table
      .add("calculate_per_token_loss", training.calculate_per_token_loss,
           "weigh every valid token of a step equally, so that gradients do not depend on the layout. Turned off, each "
           "micro-batch weighs the same however many valid tokens it has, as Megatron's default does")
      .also_turned_off_by("--no-calculate-per-token-loss");
  table.add("check_for_nan_in_loss_and_grad", training.check_for_nan_in_loss_and_grad, "go on after NaN or infinity")
      .turned_off_by({"--no-check-for-nan-in-loss-and-grad"});
}

void describe_precision(FieldTable& table, PrecisionConfig& precision) {
  table.begin_group("Precision",
                    "None of the first three: fp32. bf16 and fp16 keep fp32 main weights in the optimizer, "
                    "unless --main-params-dtype bf16.");
  table.add("bf16", precision.bf16, "weights and activations in bfloat16");
  table.add("fp16", precision.fp16, "weights and activations in float16, with loss scaling");
  table.add("fp64", precision.fp64,
            "weights and activations in float64 (megatron.cpp only): to verify that layouts agree");
  table.add("accumulate_allreduce_grads_in_fp32", precision.accumulate_allreduce_grads_in_fp32,
            "sum gradients in fp32; --bf16 turns it on unless --grad-reduce-in-bf16 is given");
  table.add("grad_reduce_in_bf16", precision.grad_reduce_in_bf16, "sum and exchange gradients in bfloat16");
  table.add("fp16_lm_cross_entropy", precision.fp16_lm_cross_entropy, "logits and loss in float16; needs --fp16")
      .limited_to("not supported yet");
  table.add("float32_matmul_precision", precision.float32_matmul_precision,
            "of fp32 training on a GPU (megatron.cpp only, named as PyTorch's function): high multiplies in TF32, with "
            "10 bits of mantissa and some 7 times the rate of highest; sums, norms, softmax and weights stay fp32");
}

void describe_validation(FieldTable& table, ValidationConfig& validation) {
  table.begin_group("Evaluation",
                    "With --eval-interval 100, the loss of --eval-iters validation batches every 100 steps; with "
                    "--eval-iters above 0 also after the last step, on validation and test data.");
  table.add("eval_iters", validation.eval_iters, "batches of an evaluation").at_least(0).at_most(kMostIterations);
  table.add("eval_interval", validation.eval_interval, "steps between evaluations")
      .by_default("not during training")
      .at_least(1);
  table.add("start_eval_at_iter", validation.start_eval_at_iter, "no evaluation before this step").at_least(0);
  table.add("eval_global_batch_size", validation.eval_global_batch_size, "sequences of an evaluation batch")
      .by_default("as in training")
      .at_least(1);
  table.add("eval_micro_batch_size", validation.eval_micro_batch_size, "sequences of a pass")
      .by_default("as in training")
      .at_least(1);
  table.add("full_validation", validation.full_validation, "evaluate on the whole validation set");
  table.add("multiple_validation_sets", validation.multiple_validation_sets, "report each validation set apart");
  table.add("validation_set_names", validation.validation_set_names, "their names, in the order of the data paths");
  table.add("skip_train", validation.skip_train, "evaluate only");
}

void describe_cuda_graph(FieldTable& table, CudaGraphConfig& graph) {
  table.begin_group("CUDA graphs",
                    "Where a step of a small model has so many small kernels that the host cannot keep a GPU busy: "
                    "--cuda-graph-impl full_iteration. Losses and weights have the same bits with and without.");
  table
      .add(
          "cuda_graph_impl", graph.impl,
          "full_iteration: record forward and backward of all micro-batches of a step once, and launch them by one "
          "call; the optimizer is launched apart. Not with pipelines, documents that --reset-attention-mask or "
          "--reset-position-ids tell apart, --timing-log-level 2, --nvtx-ranges without --profile, nor --profile-ranks "
          "of several. Steps of --profile run op by op. For --distributed-timeout-* a launch is one exchange, which "
          "takes as long as the step")
      .later({"local", "transformer_engine"});
  table
      .add("cuda_graph_warmup_steps", graph.warmup_steps,
           "steps that run op by op before one is recorded; again where the global batch changes")
      .at_least(1)
      .at_most(kMostIterations);
}

void describe_launch(FieldTable& table, LaunchConfig& launch) {
  table.begin_group("Launch",
                    "megatron.cpp only. mpirun and srun start ranks as processes; then leave --nproc-per-node out.");
  table
      .add("nproc_per_node", launch.nproc_per_node,
           "ranks to start here: threads of this process, or a process for each GPU")
      .by_default("one")
      .named({"--nproc-per-node", "--nproc_per_node"})
      .at_least(1)
      .at_most(kMostRanksHere);
  table
      .add("nnodes", launch.nnodes,
           "hosts, as scripts give it to torchrun; above 1 only where a launcher has started the ranks")
      .at_least(1);
  table.add("num_threads", launch.num_threads, "threads of a rank")
      .by_default("cores / ranks of this machine")
      .at_least(1)
      .at_most(kMostThreads);
  table.add("device", launch.device, "what computes")
      .by_default("a GPU where one answers and can run this, else the CPU")
      .one_of({"cpu", "cuda"});
  table
      .add("matmul_choices", launch.matmul_choices,
           "file of algorithms for matrix products on the GPU that 'megatron bench gemm --tune' has measured; 'none': "
           "the library's own choice")
      .by_default("benchmarks/tuned/GPU.json near the program, where it is");
}

}  // namespace

void describe_training(FieldTable& table, PretrainConfig& config) {
  describe_batches(table, config.training);
  describe_precision(table, config.precision);
  describe_validation(table, config.validation);
  describe_cuda_graph(table, config.cuda_graph);
  describe_launch(table, config.launch);
}

}  // namespace megatron
