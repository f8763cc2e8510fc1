// Where the ranks of a job that have a GPU each find each other.
#pragma once

#include "commands/launch_environment.h"
#include "megatron/comm/rendezvous/store_client.h"

namespace megatron {

struct RankStore {
  StoreClient::Address address;
  bool is_hosted_by_first = true;  // rank 0 is to serve it; else the launcher does
};

/// | launcher | store |
/// |---|---|
/// | torchrun, or our own processes | MASTER_ADDR:MASTER_PORT; its agent serves it where TORCHELASTIC_USE_AGENT_STORE
/// is True | | mpirun, srun | MASTER_ADDR:MASTER_PORT where both are set (mpirun -x), else: | | mpirun on one host |
/// 127.0.0.1, at a port that the job's name (PMIX_NAMESPACE) gives | | srun | the first host of the step, at a port
/// that the numbers of job and step give | Such a port is from 15000 to 29999, below those that the system hands out.
/// All keys begin with the job, and torchrun's count of restarts, so that no two meet in one store.
/// @throw ConfigError if a variable is missing or no port, or hosts of mpirun have not been told of the first one
RankStore rank_store(const LaunchEnvironment& launch, const Variable& variable);

/// The first of Slurm's list of hosts: "n[001-004,007]a,gpu5" is n001a, n002a ... @throw ConfigError if that is no list
std::string first_host(const std::string& list);

}  // namespace megatron
