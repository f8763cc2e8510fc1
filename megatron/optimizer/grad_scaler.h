// The factor that keeps small fp16 gradients from vanishing.
#pragma once

#include <cstdint>
#include <memory>

#include "megatron/optimizer/optimizer_config.h"

namespace megatron {

/// Held in float32, as Megatron holds it.
class GradScaler {
 public:
  virtual ~GradScaler() = default;
  /// The factor of the loss.
  virtual float scale() const = 0;
  /// The factor of the gradients: 1/scale, rounded once.
  float inverse_scale() const { return static_cast<float>(1.0 / static_cast<double>(scale())); }
  /// Learns whether the gradients of a step held an infinity or NaN on any rank.
  virtual void update(bool found_inf) = 0;
};

class ConstantGradScaler final : public GradScaler {
 public:
  /// @throw ConfigError unless the scale is positive and finite.
  explicit ConstantGradScaler(double scale);
  float scale() const override { return scale_; }
  void update(bool) override {}

 private:
  float scale_;
};

struct DynamicGradScalerConfig {
  double initial_scale = 4294967296;
  double min_scale = 1.0;
  double growth_factor = 2.0;      ///< above 1
  double backoff_factor = 0.5;     ///< between 0 and 1
  int64_t growth_interval = 1000;  ///< good steps before the scale grows
  int64_t hysteresis = 2;          ///< bad steps before the scale shrinks
};

/// Grows after `growth_interval` good steps in a row, shrinks from the `hysteresis`-th bad step on. Only growing
/// restores the hysteresis: until then each further bad step shrinks the scale again, as in Megatron.
class DynamicGradScaler final : public GradScaler {
 public:
  /// The state that a checkpoint keeps.
  struct State {
    float scale;
    int64_t growth_tracker;      ///< good steps since the last bad one or the last growth
    int64_t hysteresis_tracker;  ///< bad steps left; may become negative
    bool operator==(const State&) const = default;
  };

  /// @throw ConfigError that lists what is out of range.
  explicit DynamicGradScaler(const DynamicGradScalerConfig& config);
  float scale() const override { return state_.scale; }
  void update(bool found_inf) override;
  const State& state() const { return state_; }
  void load(const State& stored) { state_ = stored; }

 private:
  DynamicGradScalerConfig config_;
  State state_;
};

/// The scaler of --fp16 and --loss-scale: constant with a scale, otherwise dynamic; null without --fp16.
std::unique_ptr<GradScaler> make_grad_scaler(const OptimizerConfig& config);

}  // namespace megatron
