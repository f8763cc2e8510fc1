#include "megatron/training/device_choice.h"

#include "megatron/core/cuda_devices.h"
#include "megatron/kernels/cuda/attention.h"

namespace megatron {
namespace {

/// Why no GPU of this version can do it; empty if one can.
std::string obstacle(const DeviceNeeds& needs) {
  if (needs.num_ranks > 1)
    return fmt::format("{} ranks exchange data over the CPU (NCCL is not there yet): one rank runs on a GPU",
                       needs.num_ranks);
  if (needs.dtype == DType::kFloat64) return "fp64 is computed on the CPU alone";
  return "";
}

std::string text_of(const CudaDeviceFacts& gpu) {
  constexpr double kGibibyte = 1 << 30;
  return fmt::format("device: cuda, {}, {:.1f} GiB of which {:.1f} are free, CUDA {}.{} of the driver", gpu.name,
                     static_cast<double>(gpu.memory_bytes) / kGibibyte, static_cast<double>(gpu.free_bytes) / kGibibyte,
                     gpu.driver_version / 1000, gpu.driver_version % 1000 / 10);
}

std::string text_of_cpu(const DeviceNeeds& needs, const std::string& reason) {
  const std::string text =
      fmt::format("device: cpu, {} thread{} a rank", needs.num_threads, needs.num_threads == 1 ? "" : "s");
  return reason.empty() ? text : fmt::format("{}; no GPU: {}", text, reason);
}

}  // namespace

DeviceNeeds device_needs_of(const PretrainConfig& config, int num_threads) {
  return {.device = config.launch.device,
          .num_ranks = config.parallel.world_size,
          .dtype = config.transformer.params_dtype,
          .num_threads = num_threads};
}

DeviceChoice choose_device(const DeviceNeeds& needs) {
  if (needs.device == "cpu") return {DeviceKind::kCpu, text_of_cpu(needs, "")};
  const bool must = needs.device == "cuda";
  const std::string reason = obstacle(needs);
  require<NotSupported>(!must || reason.empty(), "--device cuda: {}. Leave --device out, or give --device cpu.",
                        reason);
  if (!reason.empty()) return {DeviceKind::kCpu, text_of_cpu(needs, kHasCuda ? reason : "")};
  require<NotSupported>(
      !must || kHasCuda,
      "--device cuda: this build has no CUDA kernels. Build with -DMEGATRON_CUDA=ON, or give --device "
      "cpu.");
  const CudaDevices gpus = find_cuda_devices();
  require<DeviceError>(!must || !gpus.devices.empty(),
                       "--device cuda: no GPU answers: {}. See nvidia-smi, or give --device cpu.", gpus.problem);
  if (gpus.devices.empty()) return {DeviceKind::kCpu, text_of_cpu(needs, gpus.problem)};
  std::string text = text_of(gpus.devices.front());
  if constexpr (kHasCuda) text += "; attention: " + kernels::attention_library();
  return {DeviceKind::kCuda, text};
}

}  // namespace megatron
