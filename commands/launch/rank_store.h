// The address of the store through which ranks with a GPU each find each other.
#pragma once

#include "commands/launch/launch_environment.h"
#include "megatron/comm/rendezvous/store_client.h"

namespace megatron {

struct RankStore {
  StoreClient::Address address;
  bool is_hosted_by_first = true;  // rank 0 serves it; else the launcher does
};

/// Under torchrun and for our own processes: MASTER_ADDR:MASTER_PORT, which the agent serves if
/// TORCHELASTIC_USE_AGENT_STORE is True. Under mpirun and srun: MASTER_ADDR if it is set (mpirun -x), else 127.0.0.1 if
/// all ranks are on one host, else srun's first host of the step; MASTER_PORT if it is set, else a port derived from
/// the name of the job (PMIX_NAMESPACE, or Slurm's numbers of job and step), from 15000 to 29999, below those that the
/// system assigns. All keys begin with the job and torchrun's count of restarts, so that two jobs never share keys.
/// @throw ConfigError if a variable is missing or not a port, or mpirun has several hosts and MASTER_ADDR is not set
RankStore rank_store(const LaunchEnvironment& launch, const Variable& variable);

/// The first of Slurm's list of hosts: "n[001-004,007]a,gpu5" is n001a, n002a ... @throw ConfigError if it is no list
std::string first_host(const std::string& list);

}  // namespace megatron
