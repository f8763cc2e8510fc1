#include "megatron/kernels/main_params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "megatron/kernels/adam.h"
#include "tests/kernels/cpu_streams.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::random_values;
using Values = std::vector<double>;

uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }
float weight_of(float x) {
  return std::bit_cast<float>(static_cast<uint32_t>(split_main_param(bits_of(x)).weight) << 16);
}

TEST(MainParams, AreJoinedToTheBitsThatWereSplit) {
  uint32_t bits = 0;
  for (int i = 0; i < 1 << 20; ++i, bits += 4099) {
    if (!std::isnan(std::bit_cast<float>(bits))) {
      EXPECT_EQ(join_main_param(split_main_param(bits)), bits) << bits;
    }
  }
  for (uint32_t edge : {0u, 0x7FFFu, 0x8000u, 0xFFFFu, 0x80000000u, 0x7F800000u, 0xFF800000u, 0x7F7FFFFFu, 0x007FFFFFu})
    EXPECT_EQ(join_main_param(split_main_param(edge)), edge) << edge;
}

TEST(MainParams, ThatAreNaNGiveWeightsThatAreNaN) {
  for (uint32_t nan : {0x7FFFFFFFu, 0xFFFFFFFFu, 0x7FC00000u, 0x7F800001u, 0xFF808000u}) {
    EXPECT_TRUE(std::isnan(weight_of(std::bit_cast<float>(nan)))) << nan;
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(join_main_param(split_main_param(nan))))) << nan;
  }
}

TEST(MainParams, HaveTheNearestBf16AsWeightAndRoundTiesAwayFromZero) {
  for (double x : random_values(5000, 3)) {
    const float main = static_cast<float>(x);
    const bool is_tie = (bits_of(main) & 0xFFFFu) == 0x8000u;
    EXPECT_TRUE(is_tie || weight_of(main) == static_cast<float>(BFloat16(main))) << main;
  }
  EXPECT_EQ(weight_of(1 + 0x1p-8f), 1 + 0x1p-7f);
  EXPECT_EQ(weight_of(-(1 + 0x1p-8f)), -(1 + 0x1p-7f));
  EXPECT_EQ(weight_of(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
}

TEST(MainParams, ReturnFromTheKernelsToTheBit) {
  for (int64_t n : {0, 1, 7, 2077}) {
    GuardedTensor main(DType::kFloat32, {n}, random_values(n, 4));
    GuardedTensor weight(DType::kBFloat16, {n}), remainder(DType::kUInt8, {n, 2}), joined(DType::kFloat32, {n});
    split_main_params(kTwoThreads, {.main = main.view(), .weight = weight.view(), .remainder = remainder.view()});
    join_main_params(kTwoThreads, {.weight = weight.view(), .remainder = remainder.view(), .main = joined.view()});
    EXPECT_EQ(joined.values(), main.values());
    EXPECT_TRUE(weight.guards_are_intact() && remainder.guards_are_intact() && joined.guards_are_intact());
  }
}

TEST(MainParams, InTwoHalvesTakeTheStepsOfWholeOnesToTheBit) {
  const int64_t n = 2077;
  GuardedTensor whole(DType::kFloat32, {n}, random_values(n, 1)), rounded(DType::kBFloat16, {n});
  GuardedTensor weight(DType::kBFloat16, {n}), remainder(DType::kUInt8, {n, 2}), joined(DType::kFloat32, {n});
  split_main_params(kTwoThreads, {.main = whole.view(), .weight = weight.view(), .remainder = remainder.view()});
  const Values zeros(static_cast<size_t>(n), 0);
  GuardedTensor m[2] = {{DType::kBFloat16, {n}, zeros}, {DType::kBFloat16, {n}, zeros}};
  GuardedTensor v[2] = {{DType::kFloat32, {n}, zeros}, {DType::kFloat32, {n}, zeros}};
  StepState state;
  state.learning_rate = 1e-3, state.weight_decay = 0.1;
  for (int64_t t = 1; t <= 20; ++t) {
    GuardedTensor gradient(DType::kBFloat16, {n}, random_values(n, 100 + t));
    state.bias_correction1 = 1 - std::pow(0.9, t), state.bias_correction2 = 1 - std::pow(0.999, t);
    AdamArgs args{.gradient = gradient.view(), .state = &state};
    args.parameter = whole.view(), args.model_weight = rounded.view();
    args.first_moment = m[0].view(), args.second_moment = v[0].view();
    adam(kTwoThreads, args);
    args.parameter = {}, args.remainder = remainder.view(), args.model_weight = weight.view();
    args.first_moment = m[1].view(), args.second_moment = v[1].view();
    adam(kTwoThreads, args);
    join_main_params(kTwoThreads, {.weight = weight.view(), .remainder = remainder.view(), .main = joined.view()});
    ASSERT_EQ(joined.values(), whole.values()) << "step " << t;
  }
  EXPECT_EQ(m[0].values(), m[1].values());
  EXPECT_EQ(v[0].values(), v[1].values());
  EXPECT_TRUE(weight.guards_are_intact() && remainder.guards_are_intact());
}

TEST(MainParams, AreLeftAloneWhereAnInfinityWasFound) {
  GuardedTensor weight(DType::kBFloat16, {5}, {1, 2, 3, 4, 5}), remainder(DType::kUInt8, {5, 2});
  GuardedTensor gradient(DType::kFloat32, {5}, Values(5, 1)), m(DType::kFloat32, {5}, Values(5, 0)), v = m;
  StepState state;
  state.found_inf = 1, state.learning_rate = 1;
  adam(kTwoThreads, {.remainder = remainder.view(),
                     .gradient = gradient.view(),
                     .first_moment = m.view(),
                     .second_moment = v.view(),
                     .model_weight = weight.view(),
                     .state = &state});
  EXPECT_EQ(weight.values(), (Values{1, 2, 3, 4, 5}));
}

TEST(MainParams, InHalvesOfOtherKindsAreRejected) {
  GuardedTensor half(DType::kFloat16, {4}), weight(DType::kBFloat16, {4}), remainder(DType::kUInt8, {4, 2});
  GuardedTensor flat(DType::kUInt8, {8});
  EXPECT_THROW(check_main_halves(half.view(), remainder.view()), DtypeError);
  EXPECT_THROW(check_main_halves(weight.view(), weight.view()), DtypeError);
  EXPECT_THROW(check_main_halves(weight.view(), flat.view()), ShapeError);
}

}  // namespace
}  // namespace megatron::kernels
