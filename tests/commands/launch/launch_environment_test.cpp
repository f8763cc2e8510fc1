#include "commands/launch/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Launcher = LaunchEnvironment::Launcher;
using Variables = std::map<std::string, std::string>;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

Variable reader(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

void expect_launch(const Variables& variables, Launcher launcher, const std::vector<int>& numbers) {
  const LaunchEnvironment launch = launch_environment(reader(variables));
  EXPECT_EQ(launch.launcher, launcher);
  EXPECT_EQ((std::vector{launch.rank, launch.size, launch.local_rank, launch.local_size}), numbers);
}

template <class Matcher>
void expect_refused(const Variables& variables, Matcher matcher) {
  EXPECT_THAT([&] { launch_environment(reader(variables)); }, ThrowsMessage<ConfigError>(matcher));
}

Variables with(Variables variables, const Variables& more) {
  variables.insert(more.begin(), more.end());
  return variables;
}

const Variables kMpirun{{"OMPI_COMM_WORLD_RANK", "5"},
                        {"OMPI_COMM_WORLD_SIZE", "8"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Variables kTorchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}};
const Variables kSrun{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"},
                      {"SLURM_LOCALID", "2"}, {"SLURM_NODEID", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                      {"PMIX_RANK", "6"}};

void expect_gpus(const Variables& variables, int num_ranks, const std::vector<int>& numbers) {
  const VisibleGpus gpus = visible_gpus(launch_environment(reader(variables)), num_ranks, reader(variables));
  EXPECT_EQ((std::vector{gpus.own, gpus.num_taken}), numbers);
}

TEST(LaunchEnvironment, ALocalRankUsesTheGpuOfItsNumber) {
  expect_gpus(kMpirun, 8, {1, 4});
  expect_gpus(with({{"CUDA_VISIBLE_DEVICES", "4,5,6,7"}}, kSrun), 7, {2, 3});
  expect_gpus(with({{"CUDA_VISIBLE_DEVICES", ""}}, kSrun), 7, {2, 3});
}

TEST(LaunchEnvironment, ARankThatSeesOneGpuUsesIt) {
  for (const Variables& launcher : {kMpirun, kTorchrun, kSrun})
    for (const char* gpu : {"0", "3", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"})
      expect_gpus(with({{"CUDA_VISIBLE_DEVICES", gpu}}, launcher), 8, {0, 1});
}

TEST(LaunchEnvironment, RanksThatThisProcessStartsNeedAGpuEach) {
  expect_gpus({}, 4, {0, 4});
  expect_gpus({{"CUDA_VISIBLE_DEVICES", "0"}}, 4, {0, 4});
}

TEST(LaunchEnvironment, KnowsEachLauncher) {
  expect_launch({}, Launcher::kNone, {0, 1, 0, 1});
  expect_launch(kMpirun, Launcher::kOpenMpi, {5, 8, 1, 4});
  expect_launch(kTorchrun, Launcher::kTorchrun, {3, 4, 1, 2});
  expect_launch(kSrun, Launcher::kSlurm, {6, 7, 2, 3});
  expect_launch({{"RANK", "1"}, {"WORLD_SIZE", "2"}}, Launcher::kTorchrun, {1, 2, 1, 2});
}

TEST(LaunchEnvironment, TakesTheInnermostLauncherInASlurmJob) {
  expect_launch(with(kMpirun, kSrun), Launcher::kOpenMpi, {5, 8, 1, 4});
  expect_launch(with(kTorchrun, kSrun), Launcher::kTorchrun, {3, 4, 1, 2});
  Variables batch = kSrun;
  batch.erase("SLURM_STEP_ID");  // the script itself is one process
  expect_launch(batch, Launcher::kNone, {0, 1, 0, 1});
}

TEST(LaunchEnvironment, KnowsHowManyTasksEachNodeOfSlurmHas) {
  const auto local_size_of = [](const std::string& tasks, int node) {
    const auto variables = with(
        {{"SLURM_STEP_TASKS_PER_NODE", tasks}, {"SLURM_NODEID", std::to_string(node)}, {"SLURM_LOCALID", "0"}}, kSrun);
    return launch_environment(reader(variables)).local_size;
  };
  EXPECT_EQ(local_size_of("7", 0), 7);
  EXPECT_EQ(local_size_of("5,2", 0), 5);
  EXPECT_EQ(local_size_of("5,2", 1), 2);
  for (const int node : {0, 1}) EXPECT_EQ(local_size_of("3(x2),1", node), 3);
  EXPECT_EQ(local_size_of("3(x2),1", 2), 1);
  EXPECT_EQ(local_size_of("1,2(x3)", 3), 2);
  for (const char* text : {"", "x", "3(x2", "3,", "3(2)", "-3,10", "7,99999999999"})
    expect_refused(with({{"SLURM_STEP_TASKS_PER_NODE", text}}, kSrun), HasSubstr("such a list is 3(x2),1"));
  expect_refused(with({{"SLURM_NODEID", "2"}}, kSrun), HasSubstr("has no tasks of node 2"));
  expect_refused(with({{"SLURM_LOCALID", "3"}}, kSrun), HasSubstr("SLURM_LOCALID=3 is not below"));
  Variables old = kSrun;
  old.erase("SLURM_STEP_TASKS_PER_NODE");
  expect_launch(with({{"SLURM_LOCALID", "6"}}, old), Launcher::kSlurm, {6, 7, 6, 7});
}

TEST(LaunchEnvironment, AgreeingLaunchersAreOne) {
  expect_launch(with(kMpirun, {{"RANK", "5"}, {"WORLD_SIZE", "8"}}), Launcher::kOpenMpi, {5, 8, 1, 4});
}

TEST(LaunchEnvironment, RejectsContradictions) {
  expect_refused(with(kMpirun, kTorchrun),
                 AllOf(HasSubstr("OMPI_COMM_WORLD_RANK=5 of OMPI_COMM_WORLD_SIZE=8"), HasSubstr("RANK=3")));
  expect_refused({{"RANK", "4"}, {"WORLD_SIZE", "4"}}, HasSubstr("RANK=4 is not below WORLD_SIZE=4"));
  expect_refused({{"RANK", "0"}}, HasSubstr("RANK is set and WORLD_SIZE is not"));
  expect_refused({{"WORLD_SIZE", "2"}}, HasSubstr("WORLD_SIZE is set and RANK is not"));
  expect_refused({{"RANK", "x"}, {"WORLD_SIZE", "2"}}, HasSubstr("RANK is 'x', not a number"));
  expect_refused({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}, HasSubstr("RANK is '-1'"));
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}}, HasSubstr("LOCAL_RANK=2 is not below"));
  expect_refused({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}}, HasSubstr("LOCAL_WORLD_SIZE=3"));
  expect_refused({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}, HasSubstr("MPICH"));
}

const std::vector<std::string> kCall = {"/opt/megatron",
                                        "pretrain_gpt",
                                        "--nproc-per-node=8",
                                        "--nproc-per-node",
                                        "4",
                                        "--nproc_per_node",
                                        "2",
                                        "--nproc_per_node=2",
                                        "--bf16",
                                        "--data-path",
                                        "a b",
                                        "--split=8,1,1"};

template <class Matcher>
void expect_unconnected(const Variables& variables, Matcher matcher) {
  EXPECT_THAT([&] { require_connected(launch_environment(reader(variables)), reader(variables), kCall); },
              ThrowsMessage<ConfigError>(matcher));
}

TEST(LaunchEnvironment, NamesCommandsEquivalentToTorchrun) {
  Variables one_host = kTorchrun;
  one_host["LOCAL_WORLD_SIZE"] = "4";
  const std::string flags = "--bf16 --data-path 'a b' --split=8,1,1";
  expect_unconnected(one_host, AllOf(HasSubstr("\n  mpirun -np 4 --oversubscribe --bind-to none "),
                                     HasSubstr("\n  /opt/megatron pretrain_gpt " + flags + " --nproc-per-node 4\n"),
                                     ::testing::EndsWith(" /opt/megatron pretrain_gpt " + flags)));
  expect_unconnected(kTorchrun,
                     AllOf(HasSubstr("mpirun -np 4 --map-by ppr:2:node --hostfile HOSTS --bind-to none "),
                           ::testing::EndsWith(" /opt/megatron pretrain_gpt " + flags), Not(HasSubstr("--nproc"))));
}

TEST(LaunchEnvironment, RequiresPmixUnderSrun) {
  Variables plain = kSrun;
  plain.erase("PMIX_RANK");
  expect_unconnected(plain,
                     HasSubstr("\n  srun --mpi=pmix /opt/megatron pretrain_gpt --bf16 --data-path 'a b' --split"));
  require_connected(launch_environment(reader(kSrun)), reader(kSrun), kCall);
  require_connected(launch_environment(reader(kMpirun)), reader(kMpirun), kCall);
  const Variables alone{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  require_connected(launch_environment(reader(alone)), reader(alone), kCall);
}

/// The variables that srun sets for each task, in blocks of the nodes' tasks.
std::vector<Variables> tasks_of_srun(const std::string& list, const std::vector<int>& tasks_of_node) {
  std::vector<Variables> tasks;
  const int size = std::accumulate(tasks_of_node.begin(), tasks_of_node.end(), 0);
  for (size_t node = 0; node < tasks_of_node.size(); ++node)
    for (int local = 0; local < tasks_of_node[node]; ++local)
      tasks.push_back({{"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", std::to_string(tasks.size())},
                       {"SLURM_NTASKS", "64"},  // the job's
                       {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
                       {"SLURM_LOCALID", std::to_string(local)},
                       {"SLURM_NODEID", std::to_string(node)},
                       {"SLURM_TASKS_PER_NODE", "16(x4)"},
                       {"SLURM_STEP_TASKS_PER_NODE", list}});
  return tasks;
}

TEST(LaunchEnvironment, KnowsEveryTaskOfAStepWithUnevenNodes) {
  const std::map<std::string, std::vector<int>> lists = {{"2(x3),1", {2, 2, 2, 1}},
                                                         {"1,4(x2),3", {1, 4, 4, 3}},
                                                         {"8", {8}},
                                                         {"1(x5)", {1, 1, 1, 1, 1}},
                                                         {"10,2(x1),11", {10, 2, 11}}};
  for (const auto& [list, counts] : lists) {
    SCOPED_TRACE(list);
    const std::vector<Variables> tasks = tasks_of_srun(list, counts);
    for (size_t rank = 0; rank < tasks.size(); ++rank) {
      const auto number = [&](const char* name) { return std::stoi(tasks[rank].at(name)); };
      expect_launch(tasks[rank], Launcher::kSlurm,
                    {static_cast<int>(rank), static_cast<int>(tasks.size()), number("SLURM_LOCALID"),
                     counts[static_cast<size_t>(number("SLURM_NODEID"))]});
    }
  }
}

TEST(LaunchEnvironment, AnInteractiveShellOfSlurmIsOneProcess) {
  expect_launch({{"SLURM_STEP_ID", "4294967290"},
                 {"SLURM_PROCID", "0"},
                 {"SLURM_NTASKS", "8"},
                 {"SLURM_STEP_NUM_TASKS", "1"},
                 {"SLURM_LOCALID", "0"},
                 {"SLURM_NODEID", "0"},
                 {"SLURM_STEP_TASKS_PER_NODE", "1"}},
                Launcher::kNone, {0, 1, 0, 1});
}

}  // namespace
}  // namespace megatron
