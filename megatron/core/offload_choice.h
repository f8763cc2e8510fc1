// Whether a part of a model saves its values in host memory.
#pragma once

#include <cstdint>

namespace megatron {

struct OffloadChoice {
  bool offloads = false;
  int64_t min_elements = 0;  // smaller values stay on the device
};

}  // namespace megatron
