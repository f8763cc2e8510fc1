// Known properties of a device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/core/dtype.h"
#include "megatron/telemetry/power_meter.h"
#include "megatron/training/startup/device_choice.h"

namespace megatron {

struct DeviceFacts {
  std::string name;                   // "NVIDIA H200", "AMD EPYC 9R14"
  int64_t cache_bytes = 0;            // of the last level
  std::unique_ptr<PowerMeter> meter;  // null: power and clock are not available
  DeviceKind kind = DeviceKind::kCpu;
};
/// The properties of a GPU, or of the host.
DeviceFacts facts_of(const DeviceChoice& device);

/// Dense operations a second by the data sheet.
struct KnownPeak {
  double flops = 0;
  std::string_view source;
};
/// The peak of a GPU by its name, for matmuls of this dtype with sums in fp32; nothing for a GPU that is not in the
/// table, or without such matmuls. fp32 is fp32 unless `takes_tf32`.
std::optional<KnownPeak> known_peak(std::string_view device_name, DType dtype, bool takes_tf32 = false);

/// Memory for operands of measurements that exceeds the caches: twice `cache_bytes`, within bounds.
int64_t rotation_bytes_for(int64_t cache_bytes);

}  // namespace megatron
