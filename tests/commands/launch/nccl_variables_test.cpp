#include "commands/launch/nccl_variables.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace megatron {
namespace {

constexpr const char* kMulticastVariable = "NCCL_GRAPH_REGISTER";

TEST(NcclVariables, DisableRegistrationOfGraphBuffersUnlessTheUserSetsIt) {
  unsetenv(kMulticastVariable);
  keep_nccl_from_registering_buffers();
  EXPECT_STREQ(std::getenv(kMulticastVariable), "0");
  setenv(kMulticastVariable, "1", 1);
  keep_nccl_from_registering_buffers();
  EXPECT_STREQ(std::getenv(kMulticastVariable), "1");
}

}  // namespace
}  // namespace megatron
