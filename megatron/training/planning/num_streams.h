// How many streams of its GPU a rank keeps busy beside each other.
#pragma once

#include <cstdint>

#include "megatron/comm/connection.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

/// That of the kernels, one for each connection, and one more where a group's rows are copied between GPUs
/// (PeerCopies).
int64_t num_streams_of(const Connections& connections);

/// The most that a rank of the run has, those of copies to and from the host included, known from its layout alone,
/// before there is a device: no fewer than num_streams_of(StepPlan::connections) of any rank. Interleaved pipelines
/// have four channels for each virtual stage.
/// @param config  resolved
int64_t most_streams_of(const PretrainConfig& config);

}  // namespace megatron
