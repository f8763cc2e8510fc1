// GPU memory of this process, as counted by the driver.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

/// Bytes of this process alone, its context included, from NVIDIA's management library, loaded at run time. Nothing
/// without the library, the GPU or a context on it, and where the driver does not know the process by its number (in
/// containers that number their processes themselves).
/// @param pci_bus_id  as CUDA names it: "0000:1b:00.0"
std::optional<int64_t> own_gpu_bytes(const std::string& pci_bus_id);

}  // namespace megatron
