// Where this process's GPU is.
#pragma once

#include "megatron/comm/rank_places.h"

namespace megatron {

/// Of GPU number `device` of those that the process sees. Puts no context on any. @throw DeviceError
RankPlace gpu_place(int device);

}  // namespace megatron
