// The whole model of a run, for what depends on its parameters' names and shapes alone.
#pragma once

#include <functional>

#include "megatron/models/model.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// Builds the whole model of a run, whatever its layout, on the meta device, where nothing is allocated, and calls
/// `use` with it.
void with_whole_model(const PretrainConfig& config, const std::function<void(const Model&)>& use);

}  // namespace megatron
