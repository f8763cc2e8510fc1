// What is known of a device beside what is measured on it.
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
  std::unique_ptr<PowerMeter> meter;  // null: nothing is known of power and clock
  DeviceKind kind = DeviceKind::kCpu;
};
/// Of a GPU, or of the host.
DeviceFacts facts_of(const DeviceChoice& device);

/// Dense operations a second by the data sheet.
struct KnownPeak {
  double flops = 0;
  std::string_view source;
};
/// Of a GPU by its name, for products of this dtype with sums in fp32; nothing for one that is not in the table,
/// nor where it has no such products. fp32 is fp32 unless `takes_tf32`.
std::optional<KnownPeak> known_peak(std::string_view device_name, DType dtype, bool takes_tf32 = false);

/// Memory that operands of measurements should take, so that no cache serves them: twice `cache_bytes`, within bounds.
int64_t rotation_bytes_for(int64_t cache_bytes);

}  // namespace megatron
