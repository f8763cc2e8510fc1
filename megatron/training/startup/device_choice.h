// On which device a run computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "megatron/core/device.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// The requirements of a run on its device.
struct DeviceNeeds {
  std::optional<std::string> device;  // "cpu" or "cuda", --device; none: a GPU where one answers and can do the rest
  int64_t num_ranks = 1;
  std::optional<int> ranks_of_host;  // where NCCL can join them, with a GPU each of those that this process sees
  int local_rank = 0;                // among those: the number of its GPU
  bool only_starts_ranks = false;    // this process only starts the ranks, which ask their GPUs themselves
  DType dtype = DType::kFloat32;     // of weights
  int num_threads = 1;
  bool records_graphs = false;  // --cuda-graph-impl, which a CPU cannot follow
  bool takes_tf32 = false;      // --float32-matmul-precision high, nor this
  bool drops_by_cudnn = false;  // --cudnn-attention-dropout, nor this
};
DeviceNeeds device_needs_of(const PretrainConfig& config, int num_threads);

/// A process that only starts ranks does not know free_bytes, own_bytes, text and warning: they are empty there.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  int cuda_device = 0;                       // number of the GPU
  std::string gpu;                           // its name
  std::string pci_bus_id;                    // "0000:1b:00.0"
  int64_t memory_bytes = 0, free_bytes = 0;  // of the GPU, when this process had nothing but its context there
  std::optional<int64_t> own_bytes;          // of this process then, where the driver tells
  /// For the banner: "device: cuda, NVIDIA H100 80GB HBM3, 79.2 GiB", with what runs attention, or why it is the CPU.
  std::string text;
  std::string warning;  // what makes the GPU slower than it need be, and what mends it; empty if nothing does
};
/// @throw NotSupported for a requested GPU that cannot do the rest, or not in this build, and for a CPU that
/// cannot; DeviceError where no GPU answers.
DeviceChoice choose_device(const DeviceNeeds& needs);

/// That attention runs on the built-in kernels, what that costs, and which package mends it; empty where cuDNN runs it.
/// @param library  kernels::attention_library(). @param driver_version  of CUDA, as CudaDeviceFacts has it: 13000
std::string attention_warning(std::string_view library, int driver_version);

}  // namespace megatron
