// The time that an op takes on the host: its front, its record on the tape, and its launch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/core/profile_recorder.h"

namespace megatron {

/// The host times of the ops of one step.
struct HostOpCosts {
  struct Kind {
    std::string name;  // "linear.B"
    int64_t num_ops = 0, ns = 0;
  };
  std::vector<Kind> kinds;  // the most expensive ones, together, first
  int64_t num_ops = 0, ns = 0;

  double us_per_op() const { return static_cast<double>(ns) / 1e3 / static_cast<double>(num_ops); }
  /// "5.31 us an op with its launch, of the first 360 of a step: 49 x 4.20 us linear, ..."; the largest kinds.
  std::string text() const;
};

/// An op costs from the end of the op before to its own end. That counts for the first kMostOps ops of a step: the
/// queue of a GPU has room for 1,021 kernels, and a host that is further ahead waits for it in its launches. A copy to
/// the host waits for the GPU and is left out.
class HostOpTimes {
 public:
  static constexpr size_t kMostOps = 512;

  void begin_step();
  /// In order. @param name  must live as long as this. @param host  of the launch
  void add(std::string_view name, Pass pass, const TimeSpan& host);

  bool empty() const { return steps_.empty(); }
  /// The host times of the median step.
  HostOpCosts median_step() const;

 private:
  struct Op {
    std::string_view name;
    Pass pass;
    int64_t ns;
  };
  struct Step {
    std::vector<Op> ops;
    int64_t last_end_ns = 0, ns = 0;
  };
  std::vector<Step> steps_;
};

/// Observes a device with two readings of the clock an op, some 50 ns, and no marks on its stream. Stop it before it
/// ends, unless the device has: it may outlive that.
class HostOpClock final : public Profiler {
 public:
  explicit HostOpClock(Device& device) : device_(device) { device.profiler = this; }
  HostOpClock(const HostOpClock&) = delete;
  HostOpClock& operator=(const HostOpClock&) = delete;
  ~HostOpClock() override = default;
  void stop();

  void begin_op(const OpPlace& place, const OpNote& note, const std::source_location& where) override;
  void end_op() noexcept override;
  void begin_range(const RangeNote& note) override;
  void end_range() noexcept override {}

  const HostOpTimes& times() const { return times_; }

 private:
  Device& device_;
  HostOpTimes times_;
  bool is_in_step_ = false;  // the first one may have begun before
  std::string_view name_;
  Pass pass_ = Pass::kNone;
  TimeSpan host_;
};

}  // namespace megatron
