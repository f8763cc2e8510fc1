// What this process has of a GPU's memory, as the driver counts it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

/// By NVIDIA's management library, loaded at run time: bytes of this process alone, its context included. Nothing
/// without the library, the GPU or a context on it, and where the driver does not know the process by its number (in
/// containers that number their processes themselves).
/// @param pci_bus_id  as CUDA names it: "0000:1b:00.0"
std::optional<int64_t> own_gpu_bytes(const std::string& pci_bus_id);

}  // namespace megatron
