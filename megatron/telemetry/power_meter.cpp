#include "megatron/telemetry/power_meter.h"

#include <chrono>
#include <numeric>

#include "megatron/base/thread_start.h"

namespace megatron {
namespace {

constexpr std::chrono::milliseconds kInterval{100};

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::optional<double> mean_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

PowerRecorder::~PowerRecorder() { end_thread(); }

void PowerRecorder::end_thread() {
  stops_ = true;
  if (thread_.joinable()) thread_.join();
}

void PowerRecorder::sample() {
  const std::lock_guard lock(mutex_);
  if (const auto watts = meter_->watts()) watts_.push_back(*watts);
  if (const auto mhz = meter_->mhz()) mhz_.push_back(*mhz);
}

void PowerRecorder::start() {
  end_thread();
  watts_.clear(), mhz_.clear();
  stops_ = false;
  started_ = now_seconds();
  if (!meter_) return;
  joules_at_start_ = meter_->joules();
  thread_ = start_thread<std::thread>("to read the power meter", [this] {
    for (; !stops_; std::this_thread::sleep_for(kInterval)) sample();
  });
}

PowerUse PowerRecorder::stop() {
  end_thread();
  PowerUse use{.seconds = now_seconds() - started_};
  if (!meter_) return use;
  sample();  // at least one
  use.mhz = mean_of(mhz_);
  use.watts = mean_of(watts_);
  const auto joules = meter_->joules();
  if (!joules || !joules_at_start_ || use.seconds <= 0) return use;
  use.joules = *joules - *joules_at_start_;
  use.watts = *use.joules / use.seconds;
  return use;
}

}  // namespace megatron
