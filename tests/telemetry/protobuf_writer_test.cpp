#include "megatron/telemetry/protobuf_writer.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using namespace std::string_literals;

TEST(ProtobufWriter, EncodesTheExamplesOfTheFormat) {
  EXPECT_EQ(ProtobufWriter().add_varint(1, 150).bytes(), "\x08\x96\x01"s);
  EXPECT_EQ(ProtobufWriter().add_bytes(2, "testing").bytes(), "\x12\x07testing"s);
  const std::string inner = ProtobufWriter().add_varint(1, 150).bytes();
  EXPECT_EQ(ProtobufWriter().add_bytes(3, inner).bytes(), "\x1a\x03\x08\x96\x01"s);
}

TEST(ProtobufWriter, EncodesNegativeNumbersInTenBytes) {
  EXPECT_EQ(ProtobufWriter().add_varint(1, -1).bytes(), "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
}

TEST(ProtobufWriter, EncodesFloatsWithTheLowByteFirst) {
  EXPECT_EQ(ProtobufWriter().add_float(2, 1.0f).bytes(), "\x15\x00\x00\x80\x3f"s);
  EXPECT_EQ(ProtobufWriter().add_double(1, 1.0).bytes(), "\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"s);
}

TEST(ProtobufWriter, EncodesFieldNumbersAboveFifteenInTwoBytes) {
  EXPECT_EQ(ProtobufWriter().add_varint(16, 0).bytes(), "\x80\x01\x00"s);
}

}  // namespace
}  // namespace megatron
