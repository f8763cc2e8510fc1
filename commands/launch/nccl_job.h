// Commands on several ranks with a GPU each. In builds with CUDA.
#pragma once

#include <functional>
#include <iosfwd>

#include "commands/launch/job.h"
#include "commands/launch/launch_environment.h"
#include "megatron/comm/nccl/nccl_world.h"

namespace megatron {

/// Runs a command on this rank of a job, like run_command(), on GPU number `device`. The ranks find each other through
/// rank_store(). When a rank fails, all report it on `err` and end. SIGTERM: see watch_end().
int run_nccl_job(const LaunchEnvironment& launch, const JobOptions& options, const Variable& variable, int device,
                 std::ostream& err, const std::function<void(NcclWorld&, World&)>& body);

}  // namespace megatron
