// The launcher that started this process, its rank and the number of ranks.
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
/// SLURM_STEP_TASKS_PER_NODE), in this order: the first found counts. A batch script is not a step, and an interactive
/// shell is a step of one task, whatever SLURM_NTASKS is.
/// Slurm's never conflict with the others, as those launchers often run within a Slurm job.
/// Source: torch/distributed/elastic/agent/server/local_elastic_agent.py; mpirun(1); srun(1).
/// @throw ConfigError if variables are incomplete, out of range or contradict each other, or an unknown launcher set
/// them.
LaunchEnvironment launch_environment(const Variable& variable);

/// The GPU of this process's rank among those that it sees, and the number of GPUs that the ranks of its host use.
struct VisibleGpus {
  int own = 0, num_taken = 1;
};
/// If a launcher started several ranks and this process sees only one GPU (CUDA_VISIBLE_DEVICES), its rank uses
/// that: srun --gpus-per-task 1 and users' scripts under mpirun work so. Otherwise local rank r uses GPU r.
/// @param num_ranks  ranks of the job, which this process starts itself without a launcher
VisibleGpus visible_gpus(const LaunchEnvironment& launch, int num_ranks, const Variable& variable);

/// Throws if the launched ranks cannot communicate: those of torchrun need GPUs, those of srun need
/// PMIx. The text has command lines to copy that do the same here.
/// @param arguments this program, the command and its flags
void require_connected(const LaunchEnvironment& launch, const Variable& variable,
                       const std::vector<std::string>& arguments);

/// The path of this program.
std::string own_program();

}  // namespace megatron
