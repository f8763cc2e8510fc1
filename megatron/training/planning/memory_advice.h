// Finds the changes of flags with which a run fits into memory.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// The run's own command line with more flags behind it, its vocabulary included; nullopt if they contradict it.
using ConfigWithFlags = std::function<std::optional<PretrainConfig>(const std::string& flags)>;
/// The memory that the fullest rank of a run will hold.
using PlannedBytes = std::function<int64_t(const PretrainConfig&)>;

/// Plans what can be changed one by one, from what changes the numbers least: the distributed optimizer, recompute,
/// micro-batches, other layouts of the same ranks, the optimizer in host memory, 10 and 8 bytes a parameter, more GPUs.
/// @return lines that name the flags and the bytes of those that fit, five at most; or that none of them does
std::string memory_advice(const PretrainConfig& config, const ConfigWithFlags& with_flags, const PlannedBytes& planned,
                          int64_t available_bytes);

}  // namespace megatron
