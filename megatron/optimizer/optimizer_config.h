// The settings of an optimizer. Names are Megatron Core's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "megatron/core/dtype.h"

namespace megatron {

enum class OptimizerType { kAdam, kSgd };

constexpr auto names_of_enum(OptimizerType) {
  return std::to_array<std::pair<OptimizerType, std::string_view>>(
      {{OptimizerType::kAdam, "adam"}, {OptimizerType::kSgd, "sgd"}});
}

/// Dtypes of gradients and moments with --use-precision-aware-optimizer.
enum class StateDType { kFloat32, kBFloat16 };
constexpr auto names_of_enum(StateDType) {
  return std::to_array<std::pair<StateDType, std::string_view>>(
      {{StateDType::kFloat32, "fp32"}, {StateDType::kBFloat16, "bf16"}});
}
constexpr DType dtype_of(StateDType dtype) {
  return dtype == StateDType::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
}

/// Dtypes of main parameters with that flag.
enum class MainParamsDType { kFloat32, kBFloat16 };
constexpr auto names_of_enum(MainParamsDType) {
  return std::to_array<std::pair<MainParamsDType, std::string_view>>(
      {{MainParamsDType::kFloat32, "fp32"}, {MainParamsDType::kBFloat16, "bf16"}});
}

struct OptimizerConfig {
  OptimizerType optimizer = OptimizerType::kAdam;
  std::optional<double> lr;  ///< maximum learning rate
  double min_lr = 0.0;
  std::optional<double> decoupled_lr;  ///< of the embedding and output weights; none: lr
  std::optional<double> decoupled_min_lr;

  double weight_decay = 0.01;             ///< AdamW: decoupled; SGD: added to the gradient
  bool apply_wd_to_qk_layernorm = false;  ///< decay q_layernorm and k_layernorm too
  double clip_grad = 1.0;                 ///< global L2 norm; <= 0: no clipping
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;  ///< added after the bias-corrected square root
  double sgd_momentum = 0.9;

  DType params_dtype = DType::kFloat32;  ///< of the model; below fp32: fp32 main parameters unless those are bf16
  /// Adam's state in the dtypes below; of main parameters of a bf16 model only what the weights lack, 16 bits each, or
  /// with main parameters in bf16 nothing: the weights themselves are stepped, rounded stochastically.
  bool use_precision_aware_optimizer = false;
  StateDType main_grads_dtype = StateDType::kFloat32;
  MainParamsDType main_params_dtype = MainParamsDType::kFloat32;
  StateDType exp_avg_dtype = StateDType::kFloat32;
  StateDType exp_avg_sq_dtype = StateDType::kFloat32;

  std::optional<double> loss_scale;  ///< fp16: constant scale; none: dynamic
  double initial_loss_scale = 4294967296;
  double min_loss_scale = 1.0;
  double loss_scale_window = 1000;  ///< good steps before the scale doubles
  int64_t hysteresis = 2;           ///< bad steps before the scale halves

  /// Megatron's hybrid optimizer: the state of a part of the parameters lives in host memory, and the host's cores step
  /// them.
  bool optimizer_cpu_offload = false;
  double optimizer_offload_fraction = 1.0;     ///< of the elements, rounded up to whole ranges
  bool overlap_cpu_optimizer_d2h_h2d = false;  ///< copies of gradients and weights beside the arithmetic
  int64_t host_piece_elements = 1 << 22;       ///< stepped by the host at a time

  /// Gradients that are not finite change nothing, as they do under a loss scale. Resolved from
  /// --no-check-for-nan-in-loss-and-grad.
  bool skips_nonfinite_gradients = false;
  bool log_num_zeros_in_grad = false;
  bool use_distributed_optimizer = false;
  bool overlap_param_gather = false;
};

}  // namespace megatron
