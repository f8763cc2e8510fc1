// Rows of a weight and a factor of them.
#pragma once

#include "megatron/autograd/parameter.h"

namespace megatron {

struct ScaledRows {
  Parameter* parameter = nullptr;
  int64_t begin = 0, end = 0;  ///< rows of this rank's shard
  double factor = 1;
};

}  // namespace megatron
