#include "commands/launch/nccl_variables.h"

#include <cstdlib>

namespace megatron {

void keep_nccl_from_registering_buffers() {
  constexpr int kKeepWhatTheUserSet = 0;
  setenv("NCCL_GRAPH_REGISTER", "0", kKeepWhatTheUserSet);
}

}  // namespace megatron
