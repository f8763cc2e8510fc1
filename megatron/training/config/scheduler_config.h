// Learning-rate and weight-decay schedule as given: in iterations or in samples.
#pragma once

#include <cstdint>
#include <optional>

#include "megatron/optimizer/param_scheduler.h"

namespace megatron {

struct SchedulerConfig {
  LrDecayStyle lr_decay_style = LrDecayStyle::kLinear;
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::kExponential;
  std::optional<int64_t> lr_decay_iters;
  std::optional<int64_t> lr_decay_samples;
  std::optional<int64_t> lr_wsd_decay_iters;
  std::optional<int64_t> lr_wsd_decay_samples;
  std::optional<double> lr_warmup_fraction;
  int64_t lr_warmup_iters = 0;
  int64_t lr_warmup_samples = 0;
  double lr_warmup_init = 0.0;
  std::optional<double> start_weight_decay;
  std::optional<double> end_weight_decay;
  WeightDecayIncrStyle weight_decay_incr_style = WeightDecayIncrStyle::kConstant;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;

  bool warms_up() const { return lr_warmup_iters > 0 || lr_warmup_samples > 0 || lr_warmup_fraction; }
};

}  // namespace megatron
