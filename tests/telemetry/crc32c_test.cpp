#include "megatron/telemetry/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace megatron {
namespace {

// Vectors: RFC 3720, appendix B.4.
TEST(Crc32c, GivesThePublishedCheckSums) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  std::string ascending;
  for (int i = 0; i < 32; ++i) ascending += static_cast<char>(i);
  EXPECT_EQ(crc32c(ascending), 0x46DD794Eu);
  EXPECT_EQ(crc32c(std::string(ascending.rbegin(), ascending.rend())), 0x113FDB5Cu);
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, IsMaskedByRotationAndOffset) {
  // 0xE3069283 rotated right by 15 is 0x2507C60D.
  EXPECT_EQ(masked_crc32c("123456789"), 0x2507C60Du + 0xA282EAD8u);
}

}  // namespace
}  // namespace megatron
