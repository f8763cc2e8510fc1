// The ranks of comm_nccl_conformance.
#pragma once

#include "megatron/comm/nccl/nccl_world.h"

namespace megatron::testing {

NcclWorld& nccl_job();

}  // namespace megatron::testing
