// Gradient statistics on CUDA against the CPU.
#include "megatron/kernels/gradient_statistics.h"

#include <cmath>
#include <limits>

#include "megatron/kernels/elementwise.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::random_values;
using testing::Twin;
using testing::TwinValues;

class CudaGradientStatistics : public testing::CudaTest {};

/// Statistics of the values on both sides, as bits.
void expect_equal_statistics(const CudaStream& stream, DType dtype, const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  Twin x(dtype, {n}, values), workspace(DType::kUInt8, {gradient_statistics_workspace_bytes(n)});
  TwinValues<double> largest({0.5}), norm({0});
  TwinValues<int64_t> limbs({1, 2, 3}), zeros({100});
  TwinValues<StepState> state({{.inverse_scale = 0.5, .clip_factor = 0.75}});
  const auto run = [&](const auto& s, auto on) {
    largest_absolute(s, {.x = on(x), .result = on(largest), .accumulate = true, .workspace = on(workspace)});
    squared_sum(s, {.x = on(x), .largest = on(largest), .limbs = on(limbs), .workspace = on(workspace)});
    squared_sum(
        s, {.x = on(x), .largest = on(largest), .limbs = on(limbs), .accumulate = true, .workspace = on(workspace)});
    count_zeros(s, {.x = on(x), .result = on(zeros), .accumulate = true, .workspace = on(workspace)});
    clip_factor(
        s, {.largest = on(largest), .limbs = on(limbs), .norm = on(norm), .state = on(state), .finds_overflow = true});
  };
  run(CpuStream{.num_threads = 2}, testing::OnCpu());
  run(stream, testing::OnGpu());
  const auto bits = [](const std::vector<double>& v) { return std::bit_cast<uint64_t>(v[0]); };
  EXPECT_EQ(limbs.from_gpu(), limbs.from_cpu());
  EXPECT_EQ(zeros.from_gpu(), zeros.from_cpu());
  EXPECT_EQ(state.from_gpu()[0].found_inf, state.from_cpu()[0].found_inf);
  if (!std::isnan(largest.from_cpu()[0])) {
    EXPECT_EQ(bits(largest.from_gpu()), bits(largest.from_cpu()));
    EXPECT_EQ(bits(norm.from_gpu()), bits(norm.from_cpu()));
    EXPECT_EQ(state.from_gpu()[0].clip_factor, state.from_cpu()[0].clip_factor);
  } else {
    EXPECT_TRUE(std::isnan(largest.from_gpu()[0]) && std::isnan(norm.from_gpu()[0]));
  }
}

TEST_F(CudaGradientStatistics, StatisticsHaveTheBitsOfTheCpu) {
  for (DType dtype : kCudaTypes)
    for (int64_t n : {1, 1000, 16384, 100003}) {
      SCOPED_TRACE(fmt::format("{} n {}", dtype, n));
      std::vector<double> values = random_values(n, 1, 1e-3);
      for (size_t i = 0; i < values.size(); i += 7) values[i] = 0;
      expect_equal_statistics(stream_, dtype, values);
      values[values.size() / 2] = std::numeric_limits<double>::infinity();
      expect_equal_statistics(stream_, dtype, values);
      values[values.size() / 3] = std::numeric_limits<double>::quiet_NaN();
      expect_equal_statistics(stream_, dtype, values);
    }
}

/// Limbs of the sum of squares of x twice, where the largest of the step before was `guess`.
std::vector<int64_t> limbs_after_guess(const auto& stream, auto on, Twin& x, double before) {
  Twin workspace(DType::kUInt8, {gradient_statistics_workspace_bytes(on(x).num_elements())});
  TwinValues<double> largest({0}), guess({before});
  TwinValues<int64_t> limbs({0, 0, 0});
  for (int run = 0; run < 2; ++run)
    largest_absolute(stream, {.x = on(x),
                              .result = on(largest),
                              .accumulate = true,
                              .workspace = on(workspace),
                              .guess = on(guess),
                              .limbs = on(limbs)});
  for (int run = 0; run < 2; ++run)
    squared_sum(stream, {.x = on(x),
                         .largest = on(largest),
                         .limbs = on(limbs),
                         .accumulate = run > 0,
                         .workspace = on(workspace),
                         .guess = on(guess)});
  return std::is_same_v<decltype(on), testing::OnCpu> ? limbs.from_cpu() : limbs.from_gpu();
}

TEST_F(CudaGradientStatistics, GuessesOfTheLargestChangeNoBitOfASum) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (DType dtype : kCudaTypes) {
    std::vector<double> values = random_values(70001, 1, 1e-3);
    values[4321] = 0.75;
    Twin x(dtype, {std::ssize(values)}, values);
    const std::vector<int64_t> limbs = limbs_after_guess(CpuStream{.num_threads = 1}, testing::OnCpu(), x, 0);
    for (double guess : {0.5, 0.75, 0.9999, 0.0, 1e-30, 0.25, 1.0, 1e30, kInfinity, std::nan("")})
      EXPECT_EQ(limbs_after_guess(stream_, testing::OnGpu(), x, guess), limbs)
          << fmt::format("{} guess {}", dtype, guess);
  }
}

/// So many that a block has several pieces: 3 x 2^26 elements of 1/2, and two others.
TEST_F(CudaGradientStatistics, StatisticsOfMillionsAreExact) {
  const int64_t n = int64_t{3} << 26;
  testing::DeviceBytes memory(2 * n, 0), scratch(gradient_statistics_workspace_bytes(n), 0);
  const View x{memory.data(), DType::kBFloat16, {n}, {1}};
  const View workspace{scratch.data(), DType::kUInt8, {gradient_statistics_workspace_bytes(n)}, {1}};
  TwinValues<double> largest({0}), norm({0});
  TwinValues<int64_t> limbs({0, 0, 0}), zeros({0});
  fill(stream_, {.y = x, .value = 0.5});
  for (const auto& [at, value] : {std::pair{n - 1, 1.5}, {n / 2 + 1, 0.0}})
    fill(stream_, {.y = {memory.data() + 2 * at, DType::kBFloat16, {1}, {1}}, .value = value});
  largest_absolute(stream_, {.x = x, .result = largest.gpu(), .workspace = workspace});
  squared_sum(stream_, {.x = x, .largest = largest.gpu(), .limbs = limbs.gpu(), .workspace = workspace});
  count_zeros(stream_, {.x = x, .result = zeros.gpu(), .workspace = workspace});
  clip_factor(stream_, {.largest = largest.gpu(), .limbs = limbs.gpu(), .norm = norm.gpu()});
  testing::check_cuda(cudaDeviceSynchronize());
  EXPECT_EQ(largest.from_gpu()[0], 1.5);
  EXPECT_EQ(zeros.from_gpu()[0], 1);
  EXPECT_EQ(norm.from_gpu()[0], std::sqrt(0.25 * static_cast<double>(n - 2) + 2.25));
}

}  // namespace
}  // namespace megatron::kernels
