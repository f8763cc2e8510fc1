#include "commands/hardware_queues.h"

#include <cstdlib>

namespace megatron {

void open_hardware_queues() {
  constexpr int kKeepWhatTheUserSet = 0;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kKeepWhatTheUserSet);
}

}  // namespace megatron
