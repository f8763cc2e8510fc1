// Which launcher started this process, and as which of how many.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

struct LaunchEnvironment {
  enum class Launcher { kNone, kOpenMpi, kSlurm, kTorchrun };

  Launcher launcher = Launcher::kNone;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this host
};

/// Value of an environment variable, if it is set.
using Variable = std::function<std::optional<std::string>(const char* name)>;
Variable process_environment();

/// Reads the variables of Open MPI's mpirun (OMPI_COMM_WORLD_*), torchrun (RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE) and of steps of Slurm's srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS or else SLURM_NTASKS,
/// SLURM_STEP_TASKS_PER_NODE), in this order: the first found counts. A batch script is no step, and an interactive
/// shell is a step of one task, whatever SLURM_NTASKS says.
/// Slurm's do not contradict the others, for those are often started from within a Slurm job.
/// Source: torch/distributed/elastic/agent/server/local_elastic_agent.py; mpirun(1); srun(1).
/// @throw ConfigError if variables are incomplete, out of range or contradict each other, or an unknown launcher set
/// them.
LaunchEnvironment launch_environment(const Variable& variable);

/// Of the GPUs that a process sees, that of its rank, and how many the ranks of its host take.
struct VisibleGpus {
  int own = 0, num_taken = 1;
};
/// A process that a launcher started as one of several ranks and that sees one GPU alone (CUDA_VISIBLE_DEVICES) has
/// that: srun --gpus-per-task 1 numbers them so, and scripts that users start with mpirun. Else local rank r has GPU r.
/// @param num_ranks  of the job, which this process starts itself where no launcher started them
VisibleGpus visible_gpus(const LaunchEnvironment& launch, int num_ranks, const Variable& variable);

/// Throws where the ranks that were started cannot talk to each other: those of torchrun need GPUs, those of srun need
/// PMIx. The text has command lines that do the same here, to be copied.
/// @param words this program, the command and its flags
void require_connected(const LaunchEnvironment& launch, const Variable& variable,
                       const std::vector<std::string>& words);

/// The file of this program.
std::string own_program();

}  // namespace megatron
