// The store of ranks on GPUs, under each launcher.
#include "commands/launch/rank_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Launcher = LaunchEnvironment::Launcher;
using ::testing::HasSubstr;

RankStore store_of(Launcher launcher, std::map<std::string, std::string> variables, int local_size = 4) {
  return rank_store({.launcher = launcher, .rank = 1, .size = 4, .local_rank = 1, .local_size = local_size},
                    [&](const char* name) -> std::optional<std::string> {
                      const auto found = variables.find(name);
                      return found == variables.end() ? std::nullopt : std::optional(found->second);
                    });
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(RankStore, UnderTorchrunIsItsAgents) {
  const std::map<std::string, std::string> variables{{"MASTER_ADDR", "n1"},
                                                     {"MASTER_PORT", "29400"},
                                                     {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                     {"TORCHELASTIC_RUN_ID", "abc"},
                                                     {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const RankStore store = store_of(Launcher::kTorchrun, variables);
  EXPECT_EQ(store.address.host, "n1");
  EXPECT_EQ(store.address.port, 29400);
  EXPECT_EQ(store.address.prefix, "megatron/abc/2/");
  EXPECT_FALSE(store.is_hosted_by_first);
}

TEST(RankStore, IsHostedByRank0WithoutAnAgent) {
  EXPECT_TRUE(store_of(Launcher::kTorchrun, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "1"}}).is_hosted_by_first);
  EXPECT_TRUE(store_of(Launcher::kTorchrun,
                       {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", "1"}, {"TORCHELASTIC_USE_AGENT_STORE", "False"}})
                  .is_hosted_by_first);
}

TEST(RankStore, NamesAMissingVariableOrABadPort) {
  EXPECT_THAT(error_of([] {
                store_of(Launcher::kTorchrun, {{"MASTER_PORT", "1"}});
              }),
              HasSubstr("MASTER_ADDR is not set"));
  for (const char* port : {"", "x", "0", "65536", "12a"})
    EXPECT_THAT(error_of([&] {
                  store_of(Launcher::kTorchrun, {{"MASTER_ADDR", "n1"}, {"MASTER_PORT", port}});
                }),
                HasSubstr("MASTER_PORT is '" + std::string(port) + "', not a port"));
}

TEST(RankStore, UnderMpirunOnOneHostHasAPortOfItsJob) {
  const RankStore first = store_of(Launcher::kOpenMpi, {{"PMIX_NAMESPACE", "3417441281"}}),
                  same = store_of(Launcher::kOpenMpi, {{"PMIX_NAMESPACE", "3417441281"}}),
                  other = store_of(Launcher::kOpenMpi, {{"PMIX_NAMESPACE", "3417506817"}});
  EXPECT_EQ(first.address.host, "127.0.0.1");
  EXPECT_EQ(first.address.port, same.address.port);
  EXPECT_NE(first.address.port, other.address.port);
  EXPECT_NE(first.address.prefix, other.address.prefix);
  EXPECT_GE(first.address.port, 15000);
  EXPECT_LT(first.address.port, 30000);
  EXPECT_TRUE(first.is_hosted_by_first);
}

TEST(RankStore, UnderMpirunOnSeveralHostsNeedsTheFirst) {
  EXPECT_THAT(error_of([] { store_of(Launcher::kOpenMpi, {}, 2); }), HasSubstr("-x MASTER_ADDR=FIRST_HOST"));
  const RankStore store = store_of(Launcher::kOpenMpi, {{"MASTER_ADDR", "n7"}, {"MASTER_PORT", "29500"}}, 2);
  EXPECT_EQ(store.address.host, "n7");
  EXPECT_EQ(store.address.port, 29500);
}

TEST(RankStore, TakesHostAndPortSeparatelyFromTheUser) {
  const RankStore port = store_of(Launcher::kOpenMpi, {{"PMIX_NAMESPACE", "7"}, {"MASTER_PORT", "29501"}});
  EXPECT_EQ(port.address.host, "127.0.0.1");
  EXPECT_EQ(port.address.port, 29501);
  const RankStore host = store_of(Launcher::kOpenMpi, {{"PMIX_NAMESPACE", "7"}, {"MASTER_ADDR", "n7"}}, 2);
  EXPECT_EQ(host.address.host, "n7");
  EXPECT_EQ(host.address.port, store_of(Launcher::kOpenMpi, {{"PMIX_NAMESPACE", "7"}}).address.port);
}

TEST(RankStore, UnderSrunIsOnTheFirstHostOfTheStep) {
  const RankStore store = store_of(Launcher::kSlurm,
                                   {{"SLURM_JOB_ID", "77"},
                                    {"SLURM_STEP_ID", "0"},
                                    {"SLURM_JOB_NODELIST", "a1"},
                                    {"SLURM_STEP_NODELIST", "n[001-004,007],gpu5"}},
                                   2);
  EXPECT_EQ(store.address.host, "n001");
  EXPECT_EQ(store.address.prefix, "megatron/77.0.0/");
  EXPECT_EQ(store_of(Launcher::kSlurm, {{"SLURM_JOB_NODELIST", "a1,a2"}}, 2).address.host, "a1");
  EXPECT_THAT(error_of([] { store_of(Launcher::kSlurm, {}, 2); }), HasSubstr("SLURM_JOB_NODELIST is not set"));
}

TEST(RankStore, ReadsTheFirstOfSlurmsHosts) {
  EXPECT_EQ(first_host("n7"), "n7");
  EXPECT_EQ(first_host("n7,m[1-2]"), "n7");
  EXPECT_EQ(first_host("n[07,09-12]"), "n07");
  EXPECT_EQ(first_host("rack[2-3]-node[10,20].cluster"), "rack2-node10.cluster");
  for (const char* list : {"", ",", "n[", "n[]", "n[1-2"}) EXPECT_THROW(first_host(list), ConfigError) << list;
}

}  // namespace
}  // namespace megatron
