// Keeps what a profiler is told, with the times.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string_view>
#include <vector>

#include "megatron/core/device.h"
#include "megatron/core/profiler.h"

namespace megatron {

/// Nanoseconds of the host's steady clock, which all processes of a host share.
struct TimeSpan {
  int64_t begin_ns = 0, end_ns = 0;
  int64_t duration_ns() const { return end_ns - begin_ns; }
};

int64_t steady_clock_ns();
/// Without a name in its note an op is called by its source file: "rms_norm" of ".../megatron/ops/rms_norm.cpp".
std::string_view name_of_op(const OpNote& note, const std::source_location& where);

struct OpRecord {
  std::string_view name;
  OpPlace place;
  std::optional<Shape> shape;
  TimeSpan host;    // of the launch
  TimeSpan device;  // when the device was at it; on the cpu that of the launch
};

struct RangeRecord {
  RangeNote note;
  TimeSpan host;
};

/// Not thread-safe: one a rank, called by its thread. Listens from the call of start() to that of stop().
class ProfileRecorder final : public Profiler {
 public:
  /// kRecord: keeps records. kAnnotate: shows ranges and ops to a tool that watches the program (NVTX), where the
  /// device can.
  enum class Mode { kRecord, kAnnotate, kRecordAndAnnotate };
  ProfileRecorder(Device& device, Mode mode);
  ~ProfileRecorder() override;

  void start();
  void stop();

  void begin_op(const OpPlace& place, const OpNote& note, const std::source_location& where) override;
  void end_op() noexcept override;
  void begin_range(const RangeNote& note) override;
  void end_range() noexcept override;

  struct Records {
    std::vector<OpRecord> ops;        // in order
    std::vector<RangeRecord> ranges;  // in order of their begin
  };
  /// Returns the records that have ended since the last call; call it outside of all ranges. Waits for the device.
  Records take();

 private:
  Device& device_;
  std::unique_ptr<DeviceTracer> tracer_;
  bool records_ops_, annotates_;
  Records records_;
  std::vector<size_t> open_ranges_;
};

}  // namespace megatron
