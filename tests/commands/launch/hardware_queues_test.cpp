#include "commands/launch/hardware_queues.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr const char* kVariable = "CUDA_DEVICE_MAX_CONNECTIONS";

TEST(HardwareQueues, AreAllOpenedByDefault) {
  unsetenv(kVariable);
  EXPECT_EQ(open_hardware_queues(9), "");
  EXPECT_STREQ(std::getenv(kVariable), "32");
}

/// Megatron-LM's scripts export 1.
TEST(HardwareQueues, AreAllOpenedWithANoteIfTheUserHasFewerThanStreams) {
  for (const char* few : {"1", "8", "0", "-1", "", "many", "16 "}) {
    setenv(kVariable, few, 1);
    EXPECT_THAT(open_hardware_queues(9), AllOf(HasSubstr(std::string(kVariable) + "=" + few + " becomes 32"),
                                               HasSubstr("up to 9 streams"), HasSubstr("at least 9")));
    EXPECT_STREQ(std::getenv(kVariable), "32");
  }
}

TEST(HardwareQueues, AreTheUsersIfEachStreamHasOne) {
  for (const char* enough : {"9", "16", "32"}) {
    setenv(kVariable, enough, 1);
    EXPECT_EQ(open_hardware_queues(9), "");
    EXPECT_STREQ(std::getenv(kVariable), enough);
  }
}

TEST(HardwareQueues, AreNeverSharedByStreamsThatCouldWaitForEachOther) {
  EXPECT_NO_THROW(require_enough_hardware_queues(32));
  EXPECT_THAT([] { require_enough_hardware_queues(33); },
              ThrowsMessage<NotSupported>(AllOf(HasSubstr("33 streams"), HasSubstr("32 queues"),
                                                HasSubstr("--num-virtual-stages-per-pipeline-rank"))));
}

}  // namespace
}  // namespace megatron
