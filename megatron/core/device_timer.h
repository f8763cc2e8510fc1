// How long the kernels of a device take.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "megatron/core/device.h"

namespace megatron {

/// Seconds of each of `num_calls` calls, one after the other: on cuda between events on the compute stream, so that
/// the host's time counts only where it falls behind the GPU; else by the host's steady clock.
/// @param call  gets the number of the call, and puts kernels on the device's stream
std::vector<double> seconds_of_calls(Device& device, int64_t num_calls, const std::function<void(int64_t)>& call);

/// The part of it for GPUs; only where CUDA is built. @throw DeviceError
std::vector<double> cuda_seconds_of_calls(const CudaStream& stream, int64_t num_calls,
                                          const std::function<void(int64_t)>& call);

}  // namespace megatron
