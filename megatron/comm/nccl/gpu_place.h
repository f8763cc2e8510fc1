// The location of this process's GPU.
#pragma once

#include "megatron/comm/rank_places.h"

namespace megatron {

/// The location of GPU number `device` among those that the process sees. Creates no context. @throw DeviceError
RankPlace gpu_place(int device);

}  // namespace megatron
