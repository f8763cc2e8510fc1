// Optimizer, loss scaling, learning-rate and weight-decay schedules.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

void describe_step(FieldTable& table, PretrainConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  const auto is_adam = [&optimizer] { return optimizer.optimizer == OptimizerType::kAdam; };
  table.begin_group("Optimizer",
                    "adam is AdamW: weight decay apart from the gradient. Biases and norms are not decayed.");
  table.add("optimizer", optimizer.optimizer, "which one")
      .later({"muon", "dist_muon", "lion", "soap", "adaptive_muon"});
  table.add("lr", optimizer.lr, "highest learning rate; required for training")
      .at_least(0)
      .differs({.megatron = "fails late without it", .ours = "required unless --skip-train"})
      .known_as("learning-rate learningrate base-lr max-lr peak-lr max-learning-rate");
  table.add("min_lr", optimizer.min_lr, "lowest learning rate")
      .known_as("min-learning-rate end-lr lr-min final-lr")
      .such_as("--min-lr 1e-5");
  table.add("decoupled_lr", optimizer.decoupled_lr, "highest learning rate of embedding and output weights")
      .by_default("--lr")
      .at_least(0);
  table.add("decoupled_min_lr", optimizer.decoupled_min_lr, "lowest learning rate of embedding and output weights")
      .by_default("--min-lr")
      .at_least(0)
      .needs("--decoupled-lr", [&config] { return config.optimizer.decoupled_lr.has_value(); })
      .such_as("--decoupled-lr 1e-4 --decoupled-min-lr 1e-5");
  table.add("weight_decay", optimizer.weight_decay, "per unit of learning rate").known_as("wd decay");
  table.add("apply_wd_to_qk_layernorm", optimizer.apply_wd_to_qk_layernorm, "decay the weights of --qk-layernorm too")
      .needs("--qk-layernorm", [&config] { return config.transformer.qk_layernorm; })
      .such_as("--qk-layernorm --apply-wd-to-qk-layernorm");
  table.add("clip_grad", optimizer.clip_grad, "largest L2 norm of all gradients together; 0: no limit")
      .at_least(0)
      .known_as(
          "grad-clip gradient-clip gradient-clipping clip clip-norm clip-grad-norm max-grad-norm gradient-clip-val");
  table.add("adam_beta1", optimizer.adam_beta1, "memory of the mean")
      .at_least(0)
      .below(1)
      .needs("--optimizer adam", is_adam)
      .known_as("beta1")
      .known_as("betas adam-betas");
  table.add("adam_beta2", optimizer.adam_beta2, "memory of the square")
      .at_least(0)
      .below(1)
      .needs("--optimizer adam", is_adam)
      .known_as("beta2")
      .known_as("betas adam-betas");
  table.add("adam_eps", optimizer.adam_eps, "added to the square root")
      .above(0)
      .needs("--optimizer adam", is_adam)
      .known_as("eps epsilon");
  table.add("sgd_momentum", optimizer.sgd_momentum, "memory of the gradient")
      .at_least(0)
      .below(1)
      .needs("--optimizer sgd", [is_adam] { return !is_adam(); })
      .known_as("momentum")
      .such_as("--optimizer sgd --sgd-momentum 0.95");
  table.add("log_num_zeros_in_grad", optimizer.log_num_zeros_in_grad, "count and log gradients that are zero");
}

void describe_precision(FieldTable& table, PretrainConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  table.begin_group(
      "Precision of the optimizer's state",
      "With --bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 a parameter "
      "takes 12 bytes instead of 18: weight 2, gradient 4 (2 with --main-grads-dtype bf16), remainder 2, "
      "moments 4. With --main-params-dtype bf16 and --main-grads-dtype bf16 it takes 8: no remainder. Weights are then "
      "rounded at random, up or down so that the mean is right, in every step: small updates are kept on average, as "
      "noise of one unit in the last of 8 bits. Training to the last digit of the loss needs fp32.");
  table
      .add("use_precision_aware_optimizer", optimizer.use_precision_aware_optimizer,
           "keep 16 bits beside each bf16 weight instead of an fp32 copy, unless --main-params-dtype bf16, and "
           "moments as below")
      .differs({.megatron = "needs --use-distributed-optimizer", .ours = "works without it too"})
      .such_as("--bf16 --use-precision-aware-optimizer");
  table
      .add("main_grads_dtype", optimizer.main_grads_dtype,
           "of the sum of gradients; bf16 is rounded to nearest once a micro-batch")
      .such_as("--bf16 --use-precision-aware-optimizer --main-grads-dtype bf16");
  table
      .add("main_params_dtype", optimizer.main_params_dtype,
           "of what is stepped; bf16: the weights themselves, rounded at random")
      .later({"fp16"})
      .differs({.megatron = "takes fp32 and fp16",
                .ours = "weights have no finer copy: each step rounds them up or down at random, right on average, so "
                        "small updates are not lost but come as noise of one unit in the last of 8 bits. The last "
                        "digits of a loss need fp32",
                .in_force = [&config] { return config.optimizer.main_params_dtype == MainParamsDType::kBFloat16; },
                .topic = "--main-params-dtype bf16"})
      .such_as("--bf16 --use-precision-aware-optimizer --main-params-dtype bf16");
  table.add("exp_avg_dtype", optimizer.exp_avg_dtype, "of Adam's mean; bf16 is rounded to nearest")
      .later({"fp16", "fp8"})
      .such_as("--bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16");
  table.add("exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype, "of Adam's mean square; bf16 is rounded at random")
      .later({"fp16", "fp8"})
      .such_as("--bf16 --use-precision-aware-optimizer --exp-avg-sq-dtype bf16");
}

void describe_optimizer_offload(FieldTable& table, PretrainConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  const auto is_offloaded = [&config] { return config.optimizer.optimizer_cpu_offload; };
  table.begin_group("Optimizer on the host",
                    "Main parameters and moments may lie in page-locked host memory, where all threads of a rank step "
                    "them: --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d. The device keeps weights and "
                    "gradients, 6 bytes of the 18 of a parameter with --bf16. Checkpoints are the same.");
  table
      .add("optimizer_cpu_offload", optimizer.optimizer_cpu_offload,
           "keep the optimizer's state in host memory, and step it there")
      .also({"--cpu-optimizer"})
      .known_as("cpu-optimizer-type optimizer-offload offload-optimizer")
      .differs({.megatron = "needs --use-precision-aware-optimizer, and keeps a copy of gradients and weights in host "
                            "memory",
                .ours = "works without it too; gradients and weights pass through a few pieces of host memory"});
  table
      .add("optimizer_offload_fraction", optimizer.optimizer_offload_fraction,
           "the least part of the parameters whose state is on the host, weight by weight")
      .at_least(0)
      .at_most(1)
      .needs("--optimizer-cpu-offload", is_offloaded)
      .such_as("--optimizer-cpu-offload --optimizer-offload-fraction 0.5");
  table
      .add("overlap_cpu_optimizer_d2h_h2d", optimizer.overlap_cpu_optimizer_d2h_h2d,
           "copy gradients down and weights up while the host steps other pieces; takes four pieces of host memory "
           "instead of one")
      .needs("--optimizer-cpu-offload", is_offloaded)
      .such_as("--optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d");
}

void describe_loss_scale(FieldTable& table, PretrainConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  const auto scales_dynamically = [&config] { return config.precision.fp16 && !config.optimizer.loss_scale; };
  table.begin_group("Loss scaling",
                    "For --fp16: the loss is multiplied before the backward pass so that small gradients survive. A "
                    "step with infinite gradients is skipped.");
  table.add("loss_scale", optimizer.loss_scale, "constant scale")
      .by_default("dynamic")
      .above(0)
      .at_most(kLargestScale)
      .needs("--fp16", [&config] { return config.precision.fp16; })
      .such_as("--fp16 --loss-scale 1024");
  table.add("initial_loss_scale", optimizer.initial_loss_scale, "first dynamic scale")
      .above(0)
      .at_most(kLargestScale)
      .needs("--fp16 with a dynamic loss scale", scales_dynamically)
      .such_as("--fp16 --initial-loss-scale 65536");
  table.add("min_loss_scale", optimizer.min_loss_scale, "lowest dynamic scale")
      .above(0)
      .at_most(kLargestScale)
      .needs("--fp16 with a dynamic loss scale", scales_dynamically)
      .such_as("--fp16 --min-loss-scale 2");
  table.add("loss_scale_window", optimizer.loss_scale_window, "good steps before the scale doubles")
      .at_least(1)
      .needs("--fp16 with a dynamic loss scale", scales_dynamically)
      .such_as("--fp16 --loss-scale-window 500");
  table.add("hysteresis", optimizer.hysteresis, "bad steps before the scale halves")
      .at_least(1)
      .needs("--fp16 with a dynamic loss scale", scales_dynamically)
      .such_as("--fp16 --hysteresis 4");
}

void describe_schedule(FieldTable& table, PretrainConfig& config) {
  SchedulerConfig& scheduler = config.scheduler;
  const auto is_wsd = [&scheduler] { return scheduler.lr_decay_style == LrDecayStyle::kWsd; };
  table.begin_group(
      "Learning-rate and weight-decay schedule",
      "Warm-up from --lr-warmup-init to --lr, then decay to --min-lr. Lengths in steps with --train-iters, in samples "
      "with --train-samples: --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-iters 100");
  table.add("lr_decay_style", scheduler.lr_decay_style, "shape of the decay")
      .known_as("scheduler lr-scheduler lr-scheduler-type lr-schedule decay-style");
  table.add("lr_decay_iters", scheduler.lr_decay_iters, "step at which the decay ends")
      .by_default("--train-iters")
      .at_least(1);
  table.add("lr_decay_samples", scheduler.lr_decay_samples, "sample at which the decay ends")
      .by_default("--train-samples")
      .at_least(1)
      .at_most(kMostSamples)
      .such_as("--train-samples 1000 --lr-decay-samples 800");
  table.add("lr_wsd_decay_style", scheduler.lr_wsd_decay_style, "shape of the decay at the end of WSD")
      .needs("--lr-decay-style WSD", is_wsd)
      .such_as("--lr-decay-style WSD --lr-wsd-decay-iters 10 --lr-wsd-decay-style linear");
  table.add("lr_wsd_decay_iters", scheduler.lr_wsd_decay_iters, "length of WSD's decay, in steps")
      .at_least(1)
      .needs("--lr-decay-style WSD", is_wsd)
      .such_as("--lr-decay-style WSD --lr-wsd-decay-iters 10");
  table.add("lr_wsd_decay_samples", scheduler.lr_wsd_decay_samples, "length of WSD's decay, in samples")
      .at_least(1)
      .at_most(kMostSamples)
      .needs("--lr-decay-style WSD", is_wsd)
      .such_as("--train-samples 1000 --lr-decay-style WSD --lr-wsd-decay-samples 100");
  table.add("lr_warmup_fraction", scheduler.lr_warmup_fraction, "length of the warm-up as a part of the decay's")
      .at_least(0)
      .known_as("warmup-ratio warmup-fraction lr-warmup-ratio")
      .such_as("--lr-warmup-fraction 0.1");
  table.add("lr_warmup_iters", scheduler.lr_warmup_iters, "length of the warm-up, in steps")
      .at_least(0)
      .known_as("warmup-steps warmup-iters num-warmup-steps lr-warmup lr-warmup-steps")
      .such_as("--lr-warmup-iters 10");
  table.add("lr_warmup_samples", scheduler.lr_warmup_samples, "length of the warm-up, in samples")
      .at_least(0)
      .at_most(kMostSamples)
      .such_as("--train-samples 1000 --lr-warmup-samples 100");
  table.add("lr_warmup_init", scheduler.lr_warmup_init, "learning rate at the start of the warm-up")
      .needs("a warm-up", [&config] { return config.scheduler.warms_up(); })
      .such_as("--lr-warmup-iters 10 --lr-warmup-init 1e-6");
  table.add("start_weight_decay", scheduler.start_weight_decay, "first weight decay, if it grows")
      .such_as("--start-weight-decay 0.01 --end-weight-decay 0.1 --weight-decay-incr-style linear");
  table.add("end_weight_decay", scheduler.end_weight_decay, "last weight decay, if it grows")
      .such_as("--start-weight-decay 0.01 --end-weight-decay 0.1 --weight-decay-incr-style linear");
  table.add("weight_decay_incr_style", scheduler.weight_decay_incr_style, "how weight decay grows")
      .such_as("--start-weight-decay 0.01 --end-weight-decay 0.1 --weight-decay-incr-style linear");
  table
      .add("override_opt_param_scheduler", scheduler.override_opt_param_scheduler,
           "on loading a checkpoint: these flags win over its schedule")
      .named({"--override-opt_param-scheduler", "--override-opt-param-scheduler"})
      .needs("--load", [&config] { return config.checkpoint.loads(); })
      .such_as("--load run --override-opt-param-scheduler");
  table
      .add("use_checkpoint_opt_param_scheduler", scheduler.use_checkpoint_opt_param_scheduler,
           "on loading a checkpoint: its schedule wins over these flags")
      .named({"--use-checkpoint-opt_param-scheduler", "--use-checkpoint-opt-param-scheduler"})
      .needs("--load", [&config] { return config.checkpoint.loads(); })
      .such_as("--load run --use-checkpoint-opt-param-scheduler");
}

}  // namespace

void describe_optimizer(FieldTable& table, PretrainConfig& config) {
  describe_step(table, config);
  describe_precision(table, config);
  describe_optimizer_offload(table, config);
  describe_loss_scale(table, config);
  describe_schedule(table, config);
}

}  // namespace megatron
