#include "megatron/telemetry/loss_averages.h"

#include <algorithm>
#include <cmath>

namespace megatron {

void LossAverages::add(std::span<const NamedValue> losses) {
  ++advanced_;
  for (const NamedValue& loss : losses) {
    const auto known = std::ranges::find(sums_, loss.name, &NamedValue::name);
    if (known == sums_.end())
      sums_.push_back(loss);
    else
      known->value += loss.value;
  }
}

void LossAverages::add_skipped(std::span<const NamedValue> losses) {
  ++skipped_;
  if (!std::ranges::all_of(losses, [](const NamedValue& loss) { return std::isfinite(loss.value); })) ++nan_;
}

std::vector<NamedValue> LossAverages::means() const {
  std::vector<NamedValue> result = sums_;
  for (NamedValue& mean : result) mean.value /= static_cast<double>(std::max<std::int64_t>(1, advanced_));
  return result;
}

void LossAverages::reset() {
  for (NamedValue& sum : sums_) sum.value = 0.0;
  advanced_ = skipped_ = nan_ = repeated_ = 0;
}

}  // namespace megatron
