#include <dlfcn.h>

#include <optional>

#include "megatron/telemetry/power_meter.h"

// The binary interface of NVIDIA's management library (nvml.h), stable under the name libnvidia-ml.so.1.

namespace megatron {
namespace {

constexpr int kSuccess = 0;  // nvmlReturn_t
constexpr int kSmClock = 1;  // nvmlClockType_t
using Handle = struct NvmlDevice*;

struct Nvml {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*handle_by_pci)(const char*, Handle*) = nullptr;
  int (*energy)(Handle, unsigned long long* millijoules) = nullptr;
  int (*power)(Handle, unsigned* milliwatts) = nullptr;
  int (*clock)(Handle, int type, unsigned* mhz) = nullptr;
};

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

/// The library stays loaded.
std::optional<Nvml> load() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  Nvml nvml;
  const bool is_whole =
      library && find(library, "nvmlInit_v2", nvml.init) && find(library, "nvmlShutdown", nvml.shutdown) &&
      find(library, "nvmlDeviceGetHandleByPciBusId_v2", nvml.handle_by_pci) &&
      find(library, "nvmlDeviceGetTotalEnergyConsumption", nvml.energy) &&
      find(library, "nvmlDeviceGetPowerUsage", nvml.power) && find(library, "nvmlDeviceGetClockInfo", nvml.clock);
  if (is_whole && nvml.init() == kSuccess) return nvml;
  return std::nullopt;
}

class GpuMeter final : public PowerMeter {
 public:
  GpuMeter(const Nvml& nvml, Handle gpu) : nvml_(nvml), gpu_(gpu) {}
  ~GpuMeter() override { nvml_.shutdown(); }
  std::optional<double> joules() override {
    unsigned long long millijoules = 0;
    if (nvml_.energy(gpu_, &millijoules) != kSuccess) return std::nullopt;
    return 1e-3 * static_cast<double>(millijoules);
  }
  std::optional<double> watts() override {
    unsigned milliwatts = 0;
    if (nvml_.power(gpu_, &milliwatts) != kSuccess) return std::nullopt;
    return 1e-3 * milliwatts;
  }
  std::optional<double> mhz() override {
    unsigned value = 0;
    if (nvml_.clock(gpu_, kSmClock, &value) != kSuccess) return std::nullopt;
    return value;
  }
  std::string source() const override { return "NVML"; }

 private:
  Nvml nvml_;
  Handle gpu_;
};

}  // namespace

std::unique_ptr<PowerMeter> open_gpu_meter(const std::string& pci_bus_id) {
  const std::optional<Nvml> nvml = load();
  if (!nvml) return nullptr;
  Handle gpu = nullptr;
  if (nvml->handle_by_pci(pci_bus_id.c_str(), &gpu) == kSuccess) return std::make_unique<GpuMeter>(*nvml, gpu);
  nvml->shutdown();
  return nullptr;
}

}  // namespace megatron
