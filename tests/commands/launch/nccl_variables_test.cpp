#include "commands/launch/nccl_variables.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace megatron {
namespace {

constexpr const char* kVariable = "NCCL_GRAPH_REGISTER";

TEST(NcclVariables, DisableRegistrationOfGraphBuffersUnlessTheUserSetsIt) {
  unsetenv(kVariable);
  keep_nccl_from_registering_buffers();
  EXPECT_STREQ(std::getenv(kVariable), "0");
  setenv(kVariable, "1", 1);
  keep_nccl_from_registering_buffers();
  EXPECT_STREQ(std::getenv(kVariable), "1");
}

}  // namespace
}  // namespace megatron
