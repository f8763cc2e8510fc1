// The reference for the speed of training, measured once for a machine, a model and a build, and kept in a file.
#pragma once

#include <string>

#include "megatron/base/file_system.h"
#include "megatron/bench/kernel_ceiling.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/training/startup/device_choice.h"
#include "megatron/training/training_speed.h"

namespace megatron {

struct SpeedQuery {
  const PretrainConfig& config;  // resolved, its vocabulary included
  const DeviceChoice& device;
  int num_threads = 1;
  int64_t capacity_bytes = 0;  // for operands; 0: all memory of the device
  const kernels::MatmulChoices& products;
  std::string build;         // of this program: kernels of another build are measured again
  std::string cache_folder;  // empty: nothing is kept
  double most_seconds = 10;  // no kernel is measured after them; the ceiling then stays unknown
};

/// Reads the file of the same model, layout, device, threads and build in the cache folder; else the kernels of a step
/// are measured, briefly and with operands in caches, and kept there. A cache that cannot be read or written costs the
/// time to measure again. If the kernels cannot be measured, both values stay unknown.
/// The peak of a GPU is that of its data sheet, where it is known; of a CPU it is the rate of the fastest matmul.
DeviceSpeed device_speed(const SpeedQuery& query, FileSystem& files);

/// Keeps the more careful measurement of 'megatron bench step'.
/// @throw IoError
void keep_device_speed(const SpeedQuery& query, const KernelCeiling& ceiling, FileSystem& files);

}  // namespace megatron
