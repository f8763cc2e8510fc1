#include "megatron/kernels/cuda/matmul/matmul_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"

namespace megatron::kernels {
namespace {
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

MatmulChoices two_choices() {
  MatmulChoices choices{.gpu = "NVIDIA H200", .library_version = 130101};
  const MatmulKey forward{
      .m = 4096, .n = 6144, .k = 4095, .a_stride = 4096, .b_stride = 4095, .c_stride = 6144, .transpose_b = true};
  MatmulKey weight = forward;
  weight.c_dtype = DType::kFloat32, weight.transpose_a = weight.accumulate = weight.has_bias = true;
  weight.a_alignment = 2, weight.bias_alignment = 16;
  choices.choices[forward] = {.algorithm = {1, ~uint64_t{0}, uint64_t{1} << 63}, .microseconds = 310.25};
  choices.choices[weight] = {.algorithm = {7}, .microseconds = 1, .first_microseconds = 2};
  return choices;
}

std::string problem_of(const std::string& json) {
  try {
    matmul_choices_from_json(json, "h200.json");
  } catch (const DataError& error) {
    return error.what();
  }
  return "accepted";
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(MatmulChoices, AreReadAsTheyWereWritten) {
  EXPECT_EQ(matmul_choices_from_json(to_json(two_choices()), "h200.json"), two_choices());
  EXPECT_EQ(matmul_choices_from_json(to_json({}), "empty"), MatmulChoices{});
}

TEST(MatmulChoices, FromADamagedFileAreRejectedWithItsName) {
  const std::string good = to_json(two_choices());
  const std::string digits(120, '0');
  const std::pair<std::string, std::string> cases[] = {
      {"", "not a file of matmul choices"},
      {good.substr(0, good.size() / 2), "not a file of matmul choices"},
      {"[]", "not a file of matmul choices"},
      {replaced(good, "\"format\": 1", "\"format\": 2"), "format 2 is unknown, this program reads 1"},
      {replaced(good, "\"format\": 1,", ""), "'format' not found"},
      {replaced(good, "\"cublaslt_version\"", "\"version\""), "'cublaslt_version' not found"},
      {replaced(good, "\"m\": 4096", "\"m\": \"4096\""), "must be number"},
      {replaced(good, "\"m\": 4096", "\"m\": 0"), "m 0, n 6144 and k 4095 must be at least 1"},
      {replaced(good, "bfloat16", "float8"), "dtype 'float8' must be float32, bfloat16 or float16"},
      {replaced(good, "256", "3"), "alignment 3 must be a power of two up to 256"},
      {replaced(good, "0000000000000001", "000000000000000x"), "128 hexadecimal digits"},
      {replaced(good, "0000000000000001", "1"), "128 hexadecimal digits"},
  };
  for (const auto& [json, text] : cases)
    EXPECT_THAT(problem_of(json), AllOf(StartsWith("h200.json: "), HasSubstr(text)));
}

TEST(MatmulChoices, AreKeptInAFileNamedAfterTheGpu) {
  EXPECT_EQ(matmul_choices_file_name("NVIDIA H200"), "nvidia_h200.json");
  EXPECT_EQ(matmul_choices_file_name("NVIDIA H100 80GB HBM3/x"), "nvidia_h100_80gb_hbm3_x.json");
}

TEST(MatmulKeys, OfOneProductFollowEachOtherWhateverTheAlignments) {
  const MatmulKey key{.m = 5, .n = 7, .k = 3, .a_stride = 3, .b_stride = 7, .c_stride = 8};
  MatmulKey worse = key, other = key;
  worse.b_alignment = 16;
  other.accumulate = true;
  EXPECT_TRUE(is_same_product(worse, key));
  EXPECT_FALSE(is_same_product(other, key));
  EXPECT_TRUE(is_aligned_no_better(worse, key) && is_aligned_no_better(key, key));
  EXPECT_FALSE(is_aligned_no_better(key, worse));
  MatmulKey least = key;
  least.a_alignment = least.b_alignment = least.c_alignment = least.bias_alignment = 0;
  EXPECT_LT(least, worse);
  EXPECT_LT(worse, key);
  EXPECT_LT(key, other);
  MatmulKey unlike = key;
  unlike.a_alignment = 8;
  MatmulKey both = worse;
  both.a_alignment = 8;
  EXPECT_THAT(with_least_alignments({unlike, worse, key, other}), ::testing::ElementsAre(both, other));
  MatmulKey of_larger_k = key;
  of_larger_k.k += 1;
  EXPECT_LT(key, of_larger_k);
}

TEST(MatmulChoices, OfOneProductAreOne) {
  const std::string good = to_json(two_choices());
  const size_t begin = good.find('{', 1), end = good.find('}') + 1;
  const std::string object = good.substr(begin, end - begin);
  EXPECT_THAT(problem_of(replaced(good, object, object + "," + object)), HasSubstr("one matmul has two algorithms"));
}

TEST(MatmulChoices, HoldForOneGpuAndOneVersion) {
  require_made_for(two_choices(), "NVIDIA H200", 130101, "h200.json");
  for (const auto& [gpu, version] : {std::pair{"NVIDIA H100 80GB HBM3", 130101}, std::pair{"NVIDIA H200", 120800}}) {
    try {
      require_made_for(two_choices(), gpu, version, "h200.json");
      ADD_FAILURE();
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("h200.json has choices for NVIDIA H200 with cuBLASLt 130101"),
                                      HasSubstr(gpu), HasSubstr("measure them here")));
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
