#include "megatron/telemetry/gpu_process_memory.h"

#include <dlfcn.h>
#include <unistd.h>

#include <vector>

// The binary interface of NVIDIA's management library (nvml.h), stable under the name libnvidia-ml.so.1.

namespace megatron {
namespace {

constexpr int kNvmlSuccess = 0, kInsufficientSize = 7;  // nvmlReturn_t
using Handle = struct NvmlDevice*;

struct ProcessInfo {  // nvmlProcessInfo_t of the functions that end in _v3
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

template <class Function>
Function* find(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

std::optional<int64_t> bytes_of(const std::vector<ProcessInfo>& processes, int64_t pid) {
  constexpr auto kUnknown = ~0ULL;
  for (const ProcessInfo& process : processes)
    if (process.pid == pid && process.used_bytes != kUnknown) return static_cast<int64_t>(process.used_bytes);
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> own_gpu_bytes(const std::string& pci_bus_id) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);  // stays loaded
  if (!library) return std::nullopt;
  const auto init = find<int()>(library, "nvmlInit_v2"), shutdown = find<int()>(library, "nvmlShutdown");
  const auto handle_of = find<int(const char*, Handle*)>(library, "nvmlDeviceGetHandleByPciBusId_v2");
  const auto list = find<int(Handle, unsigned*, ProcessInfo*)>(library, "nvmlDeviceGetComputeRunningProcesses_v3");
  if (!init || !shutdown || !handle_of || !list || init() != kNvmlSuccess) return std::nullopt;
  constexpr size_t kNewOnes = 8;  // processes that start between the two calls
  Handle gpu = nullptr;
  unsigned count = 0;
  std::vector<ProcessInfo> processes;
  int status = handle_of(pci_bus_id.c_str(), &gpu);
  if (status == kNvmlSuccess) status = list(gpu, &count, nullptr);
  if (status == kInsufficientSize) {
    processes.resize(count + kNewOnes);
    count = static_cast<unsigned>(processes.size());
    status = list(gpu, &count, processes.data());
  }
  shutdown();
  if (status != kNvmlSuccess) return std::nullopt;
  processes.resize(count);
  return bytes_of(processes, getpid());
}

}  // namespace megatron
