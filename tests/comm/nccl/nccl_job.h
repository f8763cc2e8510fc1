// The ranks of comm_nccl_conformance.
#pragma once

#include "megatron/comm/nccl/nccl_world.h"

namespace megatron::testing {

NcclWorld& nccl_job();
/// Whether its groups "world" and "half" are to move rows and messages by copies.
bool copies_between_gpus();
/// On which its operations wait.
CUstream_st* compute_stream();

}  // namespace megatron::testing
