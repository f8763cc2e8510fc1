// Optimizer, loss scaling, learning-rate and weight-decay schedules.
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

void describe_step(FieldTable& table, OptimizerConfig& optimizer) {
  table.begin_group("Optimizer",
                    "adam is AdamW: weight decay apart from the gradient. Biases and norms are not decayed.");
  table.add("optimizer", optimizer.optimizer, "which one")
      .later({"muon", "dist_muon", "lion", "soap", "adaptive_muon"});
  table.add("lr", optimizer.lr, "highest learning rate; required for training").at_least(0);
  table.add("min_lr", optimizer.min_lr, "lowest learning rate");
  table.add("decoupled_lr", optimizer.decoupled_lr, "highest learning rate of embedding and output weights")
      .by_default("--lr")
      .at_least(0);
  table.add("decoupled_min_lr", optimizer.decoupled_min_lr, "lowest learning rate of embedding and output weights")
      .by_default("--min-lr")
      .at_least(0);
  table.add("weight_decay", optimizer.weight_decay, "per unit of learning rate");
  table.add("apply_wd_to_qk_layernorm", optimizer.apply_wd_to_qk_layernorm, "decay the weights of --qk-layernorm too");
  table.add("clip_grad", optimizer.clip_grad, "largest L2 norm of all gradients together; 0: no limit").at_least(0);
  table.add("adam_beta1", optimizer.adam_beta1, "memory of the mean").at_least(0).below(1);
  table.add("adam_beta2", optimizer.adam_beta2, "memory of the square").at_least(0).below(1);
  table.add("adam_eps", optimizer.adam_eps, "added to the square root").above(0);
  table.add("sgd_momentum", optimizer.sgd_momentum, "memory of the gradient").at_least(0).below(1);
  table.add("log_num_zeros_in_grad", optimizer.log_num_zeros_in_grad, "count and log gradients that are zero");
}

void describe_precision(FieldTable& table, OptimizerConfig& optimizer) {
  table.begin_group(
      "Precision of the optimizer's state",
      "With --bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 a parameter "
      "takes 12 bytes instead of 18: weight 2, gradient 4 (2 with --main-grads-dtype bf16), remainder 2, "
      "moments 4. With --main-params-dtype bf16 and --main-grads-dtype bf16 it takes 8: no remainder. Weights are then "
      "rounded at random, up or down so that the mean is right, in every step: small updates are kept on average, as "
      "noise of one unit in the last of 8 bits. Training to the last digit of the loss needs fp32.");
  table.add("use_precision_aware_optimizer", optimizer.use_precision_aware_optimizer,
            "keep 16 bits beside each bf16 weight instead of an fp32 copy, unless --main-params-dtype bf16, and "
            "moments as below");
  table.add("main_grads_dtype", optimizer.main_grads_dtype,
            "of the sum of gradients; bf16 is rounded to nearest once a micro-batch");
  table
      .add("main_params_dtype", optimizer.main_params_dtype,
           "of what is stepped; bf16: the weights themselves, rounded at random")
      .later({"fp16"});
  table.add("exp_avg_dtype", optimizer.exp_avg_dtype, "of Adam's mean; bf16 is rounded to nearest")
      .later({"fp16", "fp8"});
  table.add("exp_avg_sq_dtype", optimizer.exp_avg_sq_dtype, "of Adam's mean square; bf16 is rounded at random")
      .later({"fp16", "fp8"});
}

void describe_loss_scale(FieldTable& table, OptimizerConfig& optimizer) {
  table.begin_group("Loss scaling",
                    "For --fp16: the loss is multiplied before the backward pass so that small gradients survive. A "
                    "step with infinite gradients is skipped.");
  table.add("loss_scale", optimizer.loss_scale, "constant scale").by_default("dynamic").above(0).at_most(kLargestScale);
  table.add("initial_loss_scale", optimizer.initial_loss_scale, "first dynamic scale").above(0).at_most(kLargestScale);
  table.add("min_loss_scale", optimizer.min_loss_scale, "lowest dynamic scale").above(0).at_most(kLargestScale);
  table.add("loss_scale_window", optimizer.loss_scale_window, "good steps before the scale doubles").at_least(1);
  table.add("hysteresis", optimizer.hysteresis, "bad steps before the scale halves").at_least(1);
}

void describe_schedule(FieldTable& table, SchedulerConfig& scheduler) {
  table.begin_group(
      "Learning-rate and weight-decay schedule",
      "Warm-up from --lr-warmup-init to --lr, then decay to --min-lr. Lengths in steps with --train-iters, in samples "
      "with --train-samples: --lr 3e-4 --min-lr 3e-5 --lr-decay-style cosine --lr-warmup-iters 100");
  table.add("lr_decay_style", scheduler.lr_decay_style, "shape of the decay");
  table.add("lr_decay_iters", scheduler.lr_decay_iters, "step at which the decay ends")
      .by_default("--train-iters")
      .at_least(1);
  table.add("lr_decay_samples", scheduler.lr_decay_samples, "sample at which the decay ends")
      .by_default("--train-samples")
      .at_least(1)
      .at_most(kMostSamples);
  table.add("lr_wsd_decay_style", scheduler.lr_wsd_decay_style, "shape of the decay at the end of WSD");
  table.add("lr_wsd_decay_iters", scheduler.lr_wsd_decay_iters, "length of WSD's decay, in steps").at_least(1);
  table.add("lr_wsd_decay_samples", scheduler.lr_wsd_decay_samples, "length of WSD's decay, in samples")
      .at_least(1)
      .at_most(kMostSamples);
  table.add("lr_warmup_fraction", scheduler.lr_warmup_fraction, "length of the warm-up as a part of the decay's")
      .at_least(0);
  table.add("lr_warmup_iters", scheduler.lr_warmup_iters, "length of the warm-up, in steps").at_least(0);
  table.add("lr_warmup_samples", scheduler.lr_warmup_samples, "length of the warm-up, in samples")
      .at_least(0)
      .at_most(kMostSamples);
  table.add("lr_warmup_init", scheduler.lr_warmup_init, "learning rate at the start of the warm-up");
  table.add("start_weight_decay", scheduler.start_weight_decay, "first weight decay, if it grows");
  table.add("end_weight_decay", scheduler.end_weight_decay, "last weight decay, if it grows");
  table.add("weight_decay_incr_style", scheduler.weight_decay_incr_style, "how weight decay grows");
  table
      .add("override_opt_param_scheduler", scheduler.override_opt_param_scheduler,
           "on loading a checkpoint: these flags win over its schedule")
      .named({"--override-opt_param-scheduler", "--override-opt-param-scheduler"});
  table
      .add("use_checkpoint_opt_param_scheduler", scheduler.use_checkpoint_opt_param_scheduler,
           "on loading a checkpoint: its schedule wins over these flags")
      .named({"--use-checkpoint-opt_param-scheduler", "--use-checkpoint-opt-param-scheduler"});
}

}  // namespace

void describe_optimizer(FieldTable& table, PretrainConfig& config) {
  describe_step(table, config.optimizer);
  describe_precision(table, config.optimizer);
  describe_loss_scale(table, config.optimizer);
  describe_schedule(table, config.scheduler);
}

}  // namespace megatron
