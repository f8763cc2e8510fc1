// Adam, SGD, gradient statistics and initial values on CUDA against the CPU.
#include <limits>

#include "megatron/kernels/cuda/adam.h"
#include "megatron/kernels/cuda/gradient_statistics.h"
#include "megatron/kernels/cuda/loss_seed.h"
#include "megatron/kernels/cuda/main_params.h"
#include "megatron/kernels/cuda/random_fill.h"
#include "megatron/kernels/cuda/sgd.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::random_values;
using testing::Twin;
using testing::TwinValues;
using testing::within;

class CudaOptimizer : public testing::CudaTest {};

StepState step_state() {
  return {.step = 3,
          .inverse_scale = 0.5,
          .clip_factor = 0.75,
          .learning_rate = 1e-2,
          .weight_decay = 0.1,
          .bias_correction1 = 0.19,
          .bias_correction2 = 0.0975};
}
std::vector<double> squares(std::vector<double> values) {
  for (double& value : values) value *= value;
  return values;
}

TEST_F(CudaOptimizer, AdamAgreesWithTheCpu) {
  for (DType dtype : kCudaTypes)
    for (int64_t n : {1, 2077, 65536})
      for (int64_t shift : {0, 1})
        for (bool decoupled : {true, false}) {
          SCOPED_TRACE(fmt::format("{} n {} shift {}", dtype, n, shift));
          Twin p(DType::kFloat32, {n}, random_values(n, 1), {0, shift}), g(dtype, {n}, random_values(n, 2), {0, shift});
          Twin m(dtype, {n}, random_values(n, 3), {0, shift});
          Twin v(DType::kFloat32, {n}, squares(random_values(n, 4)), {0, shift}), weight(dtype, {n}, {}, {0, shift});
          for (bool found_inf : {false, true}) {
            StepState values = step_state();
            values.found_inf = found_inf ? 1 : 0;
            TwinValues<StepState> state({values});
            TwinValues<double> rate({0.03});
            compare({within(p, 1, 4), within(m, 1, 4), within(v, 1, 16), within(weight, 1, 4)},
                    [&](const auto& stream, auto on) {
                      adam(stream, {.parameter = on(p),
                                    .gradient = on(g),
                                    .first_moment = on(m),
                                    .second_moment = on(v),
                                    .model_weight = on(weight),
                                    .beta2 = 0.95,
                                    .decoupled_weight_decay = decoupled,
                                    .learning_rate_multiplier = 0.5,
                                    .learning_rate = decoupled ? on(rate) : nullptr,
                                    .state = on(state)});
                    });
          }
        }
}

TEST_F(CudaOptimizer, MainParamsInTwoHalvesAgreeWithTheCpu) {
  for (int64_t n : {1, 2077, 65536})
    for (int64_t shift : {0, 1}) {
      SCOPED_TRACE(fmt::format("n {} shift {}", n, shift));
      Twin main(DType::kFloat32, {n}, random_values(n, 1), {0, shift}), joined(DType::kFloat32, {n}, {}, {0, shift});
      Twin weight(DType::kBFloat16, {n}, {}, {0, shift}), remainder(DType::kUInt8, {n, 2}, {}, {0, 2 * shift});
      Twin g(DType::kBFloat16, {n}, random_values(n, 2), {0, shift}), m(DType::kBFloat16, {n}, random_values(n, 3));
      Twin v(DType::kBFloat16, {n}, squares(random_values(n, 4)));
      compare({{&weight}, {&remainder}, {&joined}}, [&](const auto& stream, auto on) {
        split_main_params(stream, {.main = on(main), .weight = on(weight), .remainder = on(remainder)});
        join_main_params(stream, {.weight = on(weight), .remainder = on(remainder), .main = on(joined)});
      });
      TwinValues<StepState> state({step_state()});
      compare({within(joined, 1, 4), within(m, 1, 4), within(v, 1, 16)}, [&](const auto& stream, auto on) {
        split_main_params(stream, {.main = on(main), .weight = on(weight), .remainder = on(remainder)});
        adam(stream, {.remainder = on(remainder),
                      .gradient = on(g),
                      .first_moment = on(m),
                      .second_moment = on(v),
                      .model_weight = on(weight),
                      .state = on(state)});
        join_main_params(stream, {.weight = on(weight), .remainder = on(remainder), .main = on(joined)});
      });
    }
}

TEST_F(CudaOptimizer, SgdAgreesWithTheCpu) {
  TwinValues<StepState> state({step_state()});
  for (DType dtype : kCudaTypes)
    for (double momentum : {0.0, 0.9}) {
      const int64_t n = 2077;
      Twin p(DType::kFloat32, {n}, random_values(n, 1)), g(dtype, {n}, random_values(n, 2));
      Twin m(dtype, {n}, random_values(n, 3)), weight(dtype, {n});
      std::vector<testing::Result> results = {within(p, 1, 4), within(weight, 1, 4)};
      if (momentum != 0) results.push_back(within(m, 1, 4));
      compare(results, [&](const auto& stream, auto on) {
        sgd(stream, {.parameter = on(p),
                     .gradient = on(g),
                     .momentum_buffer = momentum != 0 ? on(m) : View{},
                     .model_weight = on(weight),
                     .momentum = momentum,
                     .state = on(state)});
      });
    }
}

/// Statistics of the values on both sides, as bits.
void expect_equal_statistics(const CudaStream& stream, DType dtype, const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  Twin x(dtype, {n}, values), workspace(DType::kUInt8, {gradient_statistics_workspace_bytes(n)});
  TwinValues<double> largest({0.5}), norm({0});
  TwinValues<int64_t> limbs({1, 2, 3}), zeros({100});
  TwinValues<StepState> state({step_state()});
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

TEST_F(CudaOptimizer, StatisticsHaveTheBitsOfTheCpu) {
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

TEST_F(CudaOptimizer, InitialValuesHaveTheBitsOfTheCpu) {
  for (DType dtype : kCudaTypes)
    for (testing::Placement p : testing::kPlacements)
      for (int64_t offset : {0, 3, 1 << 20}) {
        Twin y(dtype, {5, 3, 131}, {}, p);
        compare({{&y}}, [&](const auto& stream, auto on) {
          fill_normal(stream, {.y = on(y),
                               .key = {42},
                               .global_strides = {4000, 131, 1},
                               .global_offset = offset + (int64_t{1} << 34),
                               .std = 0.02});
        });
      }
}

TEST_F(CudaOptimizer, LossSeedsHaveTheBitsOfTheCpu) {
  for (int64_t n : {0, 1, 3, 12345677}) {
    TwinValues<int64_t> num_tokens({n});
    TwinValues<StepState> state({step_state()});
    compare({}, [&](const auto& stream, auto on) {
      loss_seed(stream, {.num_tokens = on(num_tokens), .loss_scale = 65536, .state = on(state)});
    });
    EXPECT_EQ(state.from_gpu()[0].loss_seed, state.from_cpu()[0].loss_seed) << n;
  }
}

}  // namespace
}  // namespace megatron::kernels
