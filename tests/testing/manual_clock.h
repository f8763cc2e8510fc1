// A clock that tests move by hand.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace megatron::testing {

/// Copies share one time.
class ManualClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void advance_seconds(double seconds) {
    *now_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  }
  std::function<TimePoint()> reader() const {
    return [now = now_] { return *now; };
  }

 private:
  std::shared_ptr<TimePoint> now_ = std::make_shared<TimePoint>();
};

}  // namespace megatron::testing
