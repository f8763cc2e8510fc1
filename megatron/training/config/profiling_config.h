// Settings of profiles: what is recorded, in which steps and on which ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

struct ProfilingConfig {
  bool profile = false;
  int64_t profile_step_start = 10;     ///< steps that are done when it begins
  int64_t profile_step_end = 12;       ///< steps that are done when it ends
  std::vector<int64_t> profile_ranks;  ///< none: all
  bool nvtx_ranges = false;
  std::string profile_trace = "profile.json";  ///< ours
};

}  // namespace megatron
