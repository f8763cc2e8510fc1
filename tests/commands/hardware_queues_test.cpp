#include "commands/hardware_queues.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace megatron {
namespace {

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";

TEST(HardwareQueues, AreAllOpenedUnlessTheUserSaysOtherwise) {
  unsetenv(kVariable);
  open_hardware_queues();
  EXPECT_STREQ(std::getenv(kVariable), "32");
  setenv(kVariable, "1", 1);
  open_hardware_queues();
  EXPECT_STREQ(std::getenv(kVariable), "1");
}

}  // namespace
}  // namespace megatron
