// The loss curve of a run, as the demo shows it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "megatron/telemetry/axis.h"

namespace megatron {

/// Losses by iteration. A later value for the same iteration replaces the earlier one, as after a restart from an older
/// checkpoint.
class LossCurve {
 public:
  void add_training(std::int64_t iteration, double loss) { training_[iteration] = loss; }
  void add_validation(std::int64_t iteration, double loss) { validation_[iteration] = loss; }

  const std::map<std::int64_t, double>& training() const { return training_; }
  const std::map<std::int64_t, double>& validation() const { return validation_; }

  /// The training loss, smoothed before the raw values when there are many, and the validation loss with a dot at each
  /// evaluation. The lowest validation loss is printed below the title.
  std::string svg(std::string_view title, AxisScale y_scale) const;

 private:
  std::map<std::int64_t, double> training_;
  std::map<std::int64_t, double> validation_;
};

/// Reads "lm_loss" and "validation_lm_loss" of the lines that JsonlWriter wrote. A line cut off by a crash at the end
/// of the text is skipped.
/// @throw DataError naming a line before the last that is not such an object.
LossCurve parse_loss_curve(const std::string& json_lines);

/// The same of any number in the lines of training, such as "moe/max_load_layer_0": its values by iteration.
std::map<std::int64_t, double> parse_training_values(const std::string& json_lines, const std::string& name);

}  // namespace megatron
