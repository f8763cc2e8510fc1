// The ranks of comm_nccl_conformance.
#pragma once

#include "megatron/comm/nccl/nccl_world.h"

namespace megatron::testing {

NcclWorld& nccl_job();
/// Says whether its groups "world" and "half" use copies for collectives and sends.
bool copies_between_gpus();
/// The stream that waits for its operations.
CUstream_st* compute_stream();

}  // namespace megatron::testing
