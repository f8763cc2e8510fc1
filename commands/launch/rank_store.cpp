#include "commands/launch/rank_store.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Launcher = LaunchEnvironment::Launcher;

constexpr int kFirstPort = 15000, kNumPorts = 15000;

std::string required(const Variable& variable, const char* name, std::string_view who_sets_it) {
  const auto value = variable(name);
  require<ConfigError>(value.has_value(),
                       "The environment variable {} is not set. Ranks find each other by it; {} sets it.", name,
                       who_sets_it);
  return *value;
}

int port_of(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  require<ConfigError>(error == std::errc{} && end == text.data() + text.size() && port > 0 && port < 65536,
                       "The environment variable MASTER_PORT is '{}', not a port from 1 to 65535.", text);
  return port;
}

/// FNV-1a: equal on all hosts, while std::hash may differ.
int derived_port(std::string_view job) {
  uint64_t hash = 0xcbf29ce484222325;
  for (char c : job) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return kFirstPort + static_cast<int>(hash % kNumPorts);
}

RankStore store_of_torchrun(const Variable& variable) {
  const std::string run = variable("TORCHELASTIC_RUN_ID").value_or(""),
                    restart = variable("TORCHELASTIC_RESTART_COUNT").value_or("0");
  return {{required(variable, "MASTER_ADDR", "torchrun"), port_of(required(variable, "MASTER_PORT", "torchrun")),
           fmt::format("megatron/{}/{}/", run, restart)},
          variable("TORCHELASTIC_USE_AGENT_STORE") != "True"};
}

std::string name_of_job(const LaunchEnvironment& launch, const Variable& variable) {
  if (launch.launcher == Launcher::kOpenMpi) return variable("PMIX_NAMESPACE").value_or("");
  return fmt::format("{}.{}.{}", variable("SLURM_JOB_ID").value_or(""), variable("SLURM_STEP_ID").value_or(""),
                     variable("SLURM_RESTART_COUNT").value_or("0"));
}

std::string host_of_first(const LaunchEnvironment& launch, const Variable& variable) {
  if (launch.local_size == launch.size) return "127.0.0.1";
  require<ConfigError>(launch.launcher == Launcher::kSlurm,
                       "mpirun started ranks on several hosts, and does not name the host of rank 0. Give it with\n  "
                       "mpirun -x MASTER_ADDR=FIRST_HOST -x MASTER_PORT=29500 ...");
  const auto hosts = variable("SLURM_STEP_NODELIST");
  return first_host(hosts ? *hosts : required(variable, "SLURM_JOB_NODELIST", "srun"));
}

}  // namespace

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const size_t end = list.find(']', at), item_end = list.find_first_of("-,]", at);
    require<ConfigError>(end != std::string::npos && item_end > at + 1,
                         "'{}' is not a list of hosts in Slurm's form, such as n[001-004,007].", list);
    host += list.substr(at + 1, item_end - at - 1);
    at = end;
  }
  require<ConfigError>(!host.empty(), "'{}' is not a list of hosts in Slurm's form, such as n[001-004,007].", list);
  return host;
}

RankStore rank_store(const LaunchEnvironment& launch, const Variable& variable) {
  if (launch.launcher == Launcher::kTorchrun) return store_of_torchrun(variable);
  const std::string job = name_of_job(launch, variable), prefix = fmt::format("megatron/{}/", job);
  const auto host = variable("MASTER_ADDR"), port = variable("MASTER_PORT");
  return {{host ? *host : host_of_first(launch, variable), port ? port_of(*port) : derived_port(job), prefix}};
}

}  // namespace megatron
