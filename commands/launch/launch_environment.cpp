#include "commands/launch/launch_environment.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <string_view>
#include <system_error>

#include "commands/run_flags.h"
#include "commands/shell_words.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

using Launcher = LaunchEnvironment::Launcher;

std::optional<int> number(const Variable& variable, const char* name) {
  const auto text = variable(name);
  if (!text) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  require<ConfigError>(error == std::errc{} && end == text->data() + text->size() && value >= 0,
                       "The environment variable {} is '{}', not a number. A launcher sets it; unset it to start one "
                       "process.",
                       name, *text);
  return value;
}

/// Names of variables that hold the same thing for each launcher; the local ones may be missing.
struct Names {
  Launcher launcher;
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Names kOpenMpi{Launcher::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kTorchrun{Launcher::kTorchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kSlurm{Launcher::kSlurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};

constexpr const char* kTasksOfStep = "SLURM_STEP_NUM_TASKS";

void require_below(const char* name, int value, const char* limit_name, int limit) {
  require<ConfigError>(value < limit,
                       "The environment contradicts itself: {}={} is not below {}={}. Unset both to start one process.",
                       name, value, limit_name, limit);
}

std::optional<LaunchEnvironment> read(const Variable& variable, const Names& names) {
  const auto rank = number(variable, names.rank), size = number(variable, names.size);
  if (!rank && !size) return std::nullopt;
  require<ConfigError>(rank && size,
                       "The environment variable {} is set and {} is not. A launcher sets both; unset it to start one "
                       "process.",
                       rank ? names.rank : names.size, rank ? names.size : names.rank);
  require_below(names.rank, *rank, names.size, *size);
  LaunchEnvironment launch{.launcher = names.launcher, .rank = *rank, .size = *size};
  launch.local_rank = number(variable, names.local_rank).value_or(*rank);
  launch.local_size = number(variable, names.local_size).value_or(*size);
  require_below(names.local_rank, launch.local_rank, names.local_size, launch.local_size);
  require<ConfigError>(launch.local_size <= launch.size,
                       "The environment contradicts itself: {}={} is more than {}={}. Unset both to start one process.",
                       names.local_size, launch.local_size, names.size, launch.size);
  return launch;
}

/// Tasks of node `node` in Slurm's list by node: "3(x2),1" is 3, 3, 1.
std::optional<int> tasks_of_node(const std::string& list, int node) {
  const std::regex whole(R"(\d{1,9}(\(x\d{1,9}\))?(,\d{1,9}(\(x\d{1,9}\))?)*)"), item(R"((\d+)(\(x(\d+)\))?)");
  if (!std::regex_match(list, whole)) return std::nullopt;
  for (std::sregex_iterator match(list.begin(), list.end(), item), end; match != end; ++match) {
    node -= (*match)[3].matched ? std::stoi((*match)[3]) : 1;
    if (node < 0) return std::stoi((*match)[1]);
  }
  return std::nullopt;
}

/// Only in a step of srun: a batch script also has most of the variables, but is one process. So is the shell that
/// salloc opens, where SLURM_NTASKS is the job's; releases that open one as a step have SLURM_STEP_NUM_TASKS.
std::optional<LaunchEnvironment> read_slurm(const Variable& variable) {
  Names names = kSlurm;
  if (variable(kTasksOfStep)) names.size = kTasksOfStep;
  if (!variable("SLURM_STEP_ID") || number(variable, names.size).value_or(1) == 1) return std::nullopt;
  const std::optional<std::string> list = variable(kSlurm.local_size);
  const int node = number(variable, "SLURM_NODEID").value_or(0);
  const std::optional<int> local_size = list ? tasks_of_node(*list, node) : std::nullopt;
  require<ConfigError>(!list || local_size,
                       "The environment contradicts itself: {}={} has no tasks of node {} (SLURM_NODEID); such a list "
                       "is 3(x2),1. Start with srun, or unset SLURM_STEP_ID to start one process.",
                       kSlurm.local_size, list.value_or(""), node);
  return read(
      [&](const char* name) {
        if (name != std::string_view(kSlurm.local_size)) return variable(name);
        return local_size ? std::optional(std::to_string(*local_size)) : std::nullopt;
      },
      names);
}

std::vector<std::string> with_more(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Under a launcher --nproc-per-node must not contradict the number of ranks.
std::vector<std::string> without_ranks(const std::vector<std::string>& arguments) {
  const std::set<std::string> flags = num_ranks_flags();
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    if (!flags.contains(arguments[i].substr(0, equals)))
      rest.push_back(arguments[i]);
    else if (equals == std::string::npos)
      ++i;
  }
  return rest;
}

/// Open MPI's mpirun with the flags to start as many ranks on a machine with fewer cores, and in a container.
std::vector<std::string> mpirun(const LaunchEnvironment& launch) {
  std::vector<std::string> arguments = {"mpirun", "-np", std::to_string(launch.size)};
  if (launch.local_size == launch.size)
    arguments.emplace_back("--oversubscribe");
  else
    arguments =
        with_more(arguments, {"--map-by", fmt::format("ppr:{}:node", launch.local_size), "--hostfile", "HOSTS"});
  arguments = with_more(arguments, {"--bind-to", "none"});
  if (geteuid() == 0) arguments.emplace_back("--allow-run-as-root");
  return arguments;
}

}  // namespace

Variable process_environment() {
  return [](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  };
}

LaunchEnvironment launch_environment(const Variable& variable) {
  const auto mpi = read(variable, kOpenMpi), torch = read(variable, kTorchrun);
  if (mpi && torch)
    require<ConfigError>(mpi->rank == torch->rank && mpi->size == torch->size,
                         "Two launchers contradict each other: {}={} of {}={} and {}={} of {}={}. Start with one of "
                         "them, or unset the variables of the other.",
                         kOpenMpi.rank, mpi->rank, kOpenMpi.size, mpi->size, kTorchrun.rank, torch->rank,
                         kTorchrun.size, torch->size);
  if (mpi) return *mpi;
  if (torch) return *torch;
  if (const auto slurm = read_slurm(variable)) return *slurm;
  const int others = number(variable, "PMI_SIZE").value_or(1);
  require<ConfigError>(
      others == 1,
      "PMI_SIZE={} shows that the mpirun of MPICH or Intel MPI started this process. Ranks as processes "
      "communicate through Open MPI: start them with its mpirun.",
      others);
  return {};
}

VisibleGpus visible_gpus(const LaunchEnvironment& launch, int num_ranks, const Variable& variable) {
  if (launch.size == 1) return {.own = 0, .num_taken = num_ranks};
  const auto visible = variable("CUDA_VISIBLE_DEVICES");
  const bool sees_one = visible && !visible->empty() && visible->find(',') == std::string::npos;
  if (sees_one) return {};
  return {.own = launch.local_rank, .num_taken = launch.local_size};
}

std::string own_program() {
  std::error_code unreadable;
  const std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  return unreadable ? "megatron" : file.string();
}

void require_connected(const LaunchEnvironment& launch, const Variable& variable,
                       const std::vector<std::string>& arguments) {
  if (launch.size == 1) return;
  const std::vector<std::string> call = without_ranks(arguments);
  const std::string size = std::to_string(launch.size);
  if (launch.launcher == Launcher::kTorchrun) {
    const bool is_one_host = launch.local_size == launch.size;
    const std::string threads = shell_line(with_more(call, {"--nproc-per-node", size}));
    throw ConfigError(fmt::format(
        "torchrun started {} ranks, which need GPUs to communicate, but this program runs on the CPU. The same on the "
        "CPU{}:\n  {}",
        size,
        is_one_host ? ", as threads of one process:\n  " + threads + "\nor as processes"
                    : "; HOSTS names one host a line",
        shell_line(with_more(mpirun(launch), call))));
  }
  if (launch.launcher == Launcher::kSlurm && !variable("PMIX_RANK"))
    throw ConfigError(
        fmt::format("srun started {} ranks without PMIx, so they cannot find each other. Start them with\n  {}\nor, "
                    "from within the "
                    "job, with\n  {}",
                    size, shell_line(with_more({"srun", "--mpi=pmix"}, call)),
                    shell_line(with_more({"mpirun", "-np", size, "--bind-to", "none"}, call))));
}

}  // namespace megatron
