#include "megatron/training/startup/device_choice.h"

#include "megatron/core/cuda_devices.h"
#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/kernels/cuda/this_gpu.h"
#include "megatron/telemetry/gpu_process_memory.h"
#include "megatron/training/startup/matmul_precision.h"

namespace megatron {
namespace {

constexpr int kLeastCapability = 80;  // Ampere: bf16 products on tensor cores, copies to shared memory by cp.async

/// Why no GPU of this version can do it; empty if one can.
std::string obstacle(const DeviceNeeds& needs) {
  if (needs.num_ranks > 1 && !needs.ranks_of_host)
    return fmt::format("{} ranks that are threads of one process compute on the CPU: ranks on GPUs have a process each",
                       needs.num_ranks);
  if (needs.dtype == DType::kFloat64) return "fp64 is computed on the CPU alone";
  return "";
}

/// Why the GPUs cannot run this build, or so many ranks of a host; empty if they can.
std::string obstacle_of(const CudaDevices& gpus, const DeviceNeeds& needs) {
  if (gpus.devices.empty()) return fmt::format("no GPU answers: {}", gpus.problem);
  const auto num_ranks = static_cast<size_t>(needs.ranks_of_host.value_or(1));
  if (num_ranks > gpus.devices.size())
    return fmt::format("{} ranks of this host need a GPU each, and {} answer", num_ranks, gpus.devices.size());
  if constexpr (kHasCuda) {
    const CudaDeviceFacts& gpu = gpus.devices.at(static_cast<size_t>(needs.local_rank));
    if (gpu.compute_capability < kLeastCapability)
      return fmt::format("{} has compute capability {}.{}: the kernels need 8.0 (Ampere) or later", gpu.name,
                         gpu.compute_capability / 10, gpu.compute_capability % 10);
    if (!needs.only_starts_ranks && !kernels::has_code_for_this_gpu())
      return fmt::format(
          "this build has no code for {} of compute capability {}.{}. Build it on this machine, or with "
          "-DMEGATRON_CUDA_ARCHITECTURES=ALL for every generation",
          gpu.name, gpu.compute_capability / 10, gpu.compute_capability % 10);
  }
  return "";
}

std::string text_of(const CudaDevices& gpus, const DeviceNeeds& needs) {
  constexpr double kGibibyte = 1 << 30;
  const CudaDeviceFacts& gpu = gpus.devices.at(static_cast<size_t>(needs.local_rank));
  return fmt::format("device: cuda, {}, {:.1f} GiB of which {:.1f} are free, CUDA {}.{} of the driver", gpu.name,
                     static_cast<double>(gpu.memory_bytes) / kGibibyte,
                     static_cast<double>(gpus.free_bytes) / kGibibyte, gpu.driver_version / 1000,
                     gpu.driver_version % 1000 / 10);
}

std::string text_of_cpu(const DeviceNeeds& needs, const std::string& reason) {
  const std::string text =
      fmt::format("device: cpu, {} thread{} a rank", needs.num_threads, needs.num_threads == 1 ? "" : "s");
  return reason.empty() ? text : fmt::format("{}; not a GPU, as {}", text, reason);
}

DeviceChoice on_cpu(const DeviceNeeds& needs, const std::string& reason) {
  require<NotSupported>(!needs.records_graphs,
                        "--cuda-graph-impl full_iteration records the work of a GPU, and this run computes on the "
                        "CPU{}{}. Leave out --cuda-graph-impl.",
                        reason.empty() ? "" : ": ", reason);
  require<NotSupported>(!needs.takes_tf32,
                        "--float32-matmul-precision high: TF32 is a GPU's, and this run computes on the CPU{}{}. Leave "
                        "it out.",
                        reason.empty() ? "" : ": ", reason);
  require<NotSupported>(
      !needs.drops_by_cudnn,
      "--cudnn-attention-dropout: cuDNN computes on a GPU, and this run computes on the CPU{}{}. Leave "
      "it out.",
      reason.empty() ? "" : ": ", reason);
  return {.text = text_of_cpu(needs, reason)};
}

}  // namespace

DeviceNeeds device_needs_of(const PretrainConfig& config, int num_threads) {
  return {.device = config.launch.device,
          .num_ranks = config.parallel.world_size,
          .dtype = config.transformer.params_dtype,
          .num_threads = num_threads,
          .records_graphs = config.cuda_graph.records(),
          .takes_tf32 = config.precision.takes_tf32(),
          .drops_by_cudnn = config.transformer.cudnn_attention_dropout && config.transformer.attention_dropout > 0};
}

DeviceChoice choose_device(const DeviceNeeds& needs) {
  if (needs.device == "cpu") return on_cpu(needs, "");
  const bool must = needs.device == "cuda";
  const std::string reason = obstacle(needs);
  require<NotSupported>(!must || reason.empty(), "--device cuda: {}. Leave --device out, or give --device cpu.",
                        reason);
  if (!reason.empty()) return on_cpu(needs, kHasCuda ? reason : "");
  require<NotSupported>(
      !must || kHasCuda,
      "--device cuda: this build has no CUDA kernels. Build with -DMEGATRON_CUDA=ON, or give --device "
      "cpu.");
  const CudaDevices gpus = find_cuda_devices(needs.only_starts_ranks ? std::nullopt : std::optional(needs.local_rank));
  const std::string gpu_obstacle = obstacle_of(gpus, needs);
  require<DeviceError>(!must || gpu_obstacle.empty(), "--device cuda: {}. See nvidia-smi, or give --device cpu.",
                       gpu_obstacle);
  if (!gpu_obstacle.empty()) return on_cpu(needs, gpu_obstacle);
  const CudaDeviceFacts& gpu = gpus.devices.at(static_cast<size_t>(needs.local_rank));
  const std::string tf32_obstacle = needs.takes_tf32 ? tf32_obstacle_of(gpu) : "";
  require<NotSupported>(tf32_obstacle.empty(), "--float32-matmul-precision high: {}. Leave it out.", tf32_obstacle);
  // A context and cuDNN take a process about a second, and each of the ranks takes them for itself.
  if (needs.only_starts_ranks)
    return {.kind = DeviceKind::kCuda,
            .cuda_device = needs.local_rank,
            .gpu = gpu.name,
            .pci_bus_id = gpu.pci_bus_id,
            .memory_bytes = gpu.memory_bytes};
  std::string text = text_of(gpus, needs), warning;
  if constexpr (kHasCuda) {
    const std::string library = kernels::attention_library();
    text += "; attention: " + library;
    warning = attention_warning(library, gpu.driver_version);
  }
  return {.kind = DeviceKind::kCuda,
          .cuda_device = needs.local_rank,
          .gpu = gpu.name,
          .pci_bus_id = gpu.pci_bus_id,
          .memory_bytes = gpu.memory_bytes,
          .free_bytes = gpus.free_bytes,
          .own_bytes = own_gpu_bytes(gpu.pci_bus_id),
          .text = text,
          .warning = warning};
}

std::string attention_warning(std::string_view library, int driver_version) {
  if (library.starts_with("cuDNN")) return "";
  const bool is_built = library.find("built without") == std::string_view::npos;
  const int major = driver_version / 1000;
  const std::string fix =
      is_built ? fmt::format(
                     "Install cuDNN 9.18 or newer, by 'pip install \"nvidia-cudnn-cu{}>=9.18\"' with the folder "
                     "of its libcudnn.so.9 in LD_LIBRARY_PATH, or by NVIDIA's package libcudnn9-cuda-{}.",
                     major, major)
               : std::string("Run 'scripts/install_dependencies.sh build cuda' and build again.");
  return fmt::format("attention runs on {}: that can cost a third of the speed of a small model. {}", library, fix);
}

}  // namespace megatron
