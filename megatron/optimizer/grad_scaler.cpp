#include "megatron/optimizer/grad_scaler.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/error.h"

namespace megatron {

ConstantGradScaler::ConstantGradScaler(double scale) : scale_(static_cast<float>(scale)) {
  require<ConfigError>(scale > 0 && std::isfinite(scale_),
                       "[ConstantGradScaler] loss scale {} is not positive and finite", scale);
}

DynamicGradScaler::DynamicGradScaler(const DynamicGradScalerConfig& config)
    : config_(config), state_{static_cast<float>(config.initial_scale), 0, config.hysteresis} {
  const bool in_range = config.min_scale > 0 && config.initial_scale >= config.min_scale && config.growth_factor > 1 &&
                        config.backoff_factor > 0 && config.backoff_factor < 1 && config.growth_interval > 0 &&
                        config.hysteresis > 0;
  require<ConfigError>(in_range,
                       "[DynamicGradScaler] initial scale {}, lowest scale {}, growth factor {}, backoff factor {}, "
                       "growth interval {}, hysteresis {}: needed are 0 < lowest <= initial, growth factor above 1, "
                       "backoff factor between 0 and 1, interval and hysteresis above 0",
                       config.initial_scale, config.min_scale, config.growth_factor, config.backoff_factor,
                       config.growth_interval, config.hysteresis);
}

void DynamicGradScaler::update(bool found_inf) {
  if (found_inf) {
    state_.growth_tracker = 0;
    if (--state_.hysteresis_tracker <= 0)
      state_.scale =
          std::max(state_.scale * static_cast<float>(config_.backoff_factor), static_cast<float>(config_.min_scale));
    return;
  }
  if (++state_.growth_tracker < config_.growth_interval) return;
  state_.growth_tracker = 0;
  state_.hysteresis_tracker = config_.hysteresis;
  state_.scale *= static_cast<float>(config_.growth_factor);
}

std::unique_ptr<GradScaler> make_grad_scaler(const OptimizerConfig& config) {
  if (config.params_dtype != DType::kFloat16) return nullptr;
  if (config.loss_scale) return std::make_unique<ConstantGradScaler>(*config.loss_scale);
  return std::make_unique<DynamicGradScaler>(
      DynamicGradScalerConfig{.initial_scale = config.initial_loss_scale,
                              .min_scale = config.min_loss_scale,
                              .growth_interval = static_cast<int64_t>(config.loss_scale_window),
                              .hysteresis = config.hysteresis});
}

}  // namespace megatron
