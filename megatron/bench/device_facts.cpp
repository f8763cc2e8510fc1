#include "megatron/bench/device_facts.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/core/cuda_devices.h"

namespace megatron {
namespace {

/// TFLOP/s without sparsity, of bf16 and fp16 on tensor cores, and of fp32 outside of them.
struct Peak {
  std::string_view name;  // part of the device's name; the first match counts
  double half, fp32;
  std::string_view source;
  bool has_tf32 = true;  // from Ampere on, at half the rate of bf16
};
constexpr auto kPeaks = std::to_array<Peak>({
    {"GB200", 2500, 80, "NVIDIA GB200 NVL72 data sheet"},
    {"B200", 2250, 75, "NVIDIA HGX B200 data sheet"},
    {"GH200", 989.5, 67.0, "NVIDIA GH200 data sheet"},
    {"H200 NVL", 835.5, 60.3, "NVIDIA H200 NVL data sheet"},
    {"H200", 989.5, 67.0, "NVIDIA H200 data sheet"},
    {"H100 NVL", 835.5, 60.0, "NVIDIA H100 data sheet"},
    {"H100 PCIe", 756.5, 51.2, "NVIDIA H100 data sheet"},
    {"H100", 989.5, 67.0, "NVIDIA H100 data sheet"},
    {"H800", 989.5, 67.0, "that of an H100"},
    {"A100", 312, 19.5, "NVIDIA A100 data sheet"},
    {"A800", 312, 19.5, "that of an A100"},
    {"L40S", 362.05, 91.6, "NVIDIA L40S data sheet"},
    {"L40", 181.05, 90.5, "NVIDIA L40 data sheet"},
    {"L4", 121, 30.3, "NVIDIA L4 data sheet"},
    {"A10", 125, 31.2, "NVIDIA A10 data sheet"},
    {"RTX 5090", 209.5, 104.8, "NVIDIA RTX Blackwell white paper"},
    {"RTX 4090", 165.2, 82.6, "NVIDIA Ada white paper"},
    {"RTX 6000 Ada", 364.2, 91.1, "NVIDIA Ada white paper"},
    {"RTX 3090 Ti", 80, 40, "NVIDIA GA102 white paper"},
    {"RTX 3090", 71, 35.6, "NVIDIA GA102 white paper"},
    {"RTX A6000", 154.8, 38.7, "NVIDIA GA102 white paper"},
    {"V100", 125, 15.7, "NVIDIA V100 data sheet", false},
});

constexpr int64_t kMebibyte = int64_t{1} << 20;

/// The text after the colon of the first line that begins with `key`.
std::string value_in(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(key) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

int64_t kibibytes_in(const std::string& text) {
  int64_t value = 0;
  std::istringstream(text) >> value;
  return value * 1024;
}

DeviceFacts facts_of_host() {
  DeviceFacts facts{.name = value_in("/proc/cpuinfo", "model name"), .meter = open_cpu_meter("")};
  if (facts.name.empty()) facts.name = "unknown CPU";
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");  // "32768K"
  std::string text;
  file >> text;
  facts.cache_bytes = kibibytes_in(text);
  if (facts.cache_bytes == 0) facts.cache_bytes = kibibytes_in(value_in("/proc/cpuinfo", "cache size"));
  return facts;
}

}  // namespace

DeviceFacts facts_of(const DeviceChoice& device) {
  if (device.kind != DeviceKind::kCuda) return facts_of_host();
  const CudaDevices gpus = find_cuda_devices(device.cuda_device);
  const auto number = static_cast<size_t>(device.cuda_device);
  require<DeviceError>(number < gpus.devices.size(), "[bench] GPU {} does not answer: {}", number, gpus.problem);
  const CudaDeviceFacts& gpu = gpus.devices[number];
  return {.name = gpu.name,
          .cache_bytes = gpu.cache_bytes,
          .meter = open_gpu_meter(gpu.pci_bus_id),
          .kind = DeviceKind::kCuda};
}

std::optional<KnownPeak> known_peak(std::string_view device_name, DType dtype, bool takes_tf32) {
  const auto* found = std::ranges::find_if(
      kPeaks, [&](const Peak& peak) { return device_name.find(peak.name) != std::string_view::npos; });
  if (found == kPeaks.end()) return std::nullopt;
  if (dtype == DType::kBFloat16 || dtype == DType::kFloat16) return KnownPeak{1e12 * found->half, found->source};
  if (dtype == DType::kFloat32 && takes_tf32)
    return found->has_tf32 ? std::optional(KnownPeak{1e12 * found->half / 2, found->source}) : std::nullopt;
  if (dtype == DType::kFloat32) return KnownPeak{1e12 * found->fp32, found->source};
  return std::nullopt;
}

int64_t rotation_bytes_for(int64_t cache_bytes) {
  return std::clamp(2 * cache_bytes, 256 * kMebibyte, 512 * kMebibyte);
}

}  // namespace megatron
