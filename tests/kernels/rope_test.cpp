#include "megatron/kernels/rope.h"

#include <gtest/gtest.h>

#include "megatron/kernels/rope_frequencies.h"
#include "tests/kernels/cpu_streams.h"
#include "tests/testing/finite_difference.h"

namespace megatron::kernels {
namespace {
using testing::compute_dtype;
using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::largest_error;
using testing::random_values;
using testing::tolerance;
using Values = std::vector<double>;

void expect_frequencies(const RopeSettings& settings, const Values& expected, double magnitude) {
  const Values actual = rope_frequencies(settings);
  ASSERT_EQ(actual.size(), expected.size());
  // The references are fp32: a few roundings of numbers that come from a power.
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i] / expected[i], 1, tolerance(DType::kFloat32)) << i;
  EXPECT_NEAR(rope_magnitude(settings), magnitude, 1e-12);
}

// Printed by megatron-core 0.16.1 (RotaryEmbedding, YarnRotaryEmbedding) and, where it does the same or more, by
// transformers 5.23 (ROPE_INIT_FUNCTIONS) for head size 16.
TEST(RopeFrequencies, AreThoseOfTheReferences) {
  expect_frequencies(
      {.head_size = 32, .percent = 0.5},
      {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786}, 1);
  expect_frequencies(
      {.head_size = 16, .base = 500000, .scaling = RopeScaling::kLlama3},
      {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}, 1);
  expect_frequencies(
      {.head_size = 16, .base = 500000, .scaling = RopeScaling::kLlama3, .llama3 = {.original_length = 64}},
      {1, 0.079403013, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06},
      1);
}

TEST(RopeFrequencies, OfYarnAreThoseOfTheReferences) {
  expect_frequencies(
      {.head_size = 16, .scaling = RopeScaling::kYarn, .yarn = {.factor = 4, .original_length = 64}},
      {1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05},
      1.138629436111989);
  expect_frequencies(
      {.head_size = 16,
       .scaling = RopeScaling::kYarn,
       .yarn = {.factor = 40, .original_length = 4096, .mscale = 0.707, .mscale_all_dim = 1}},
      {1, 0.316227764, 0.100000001, 0.0239147246, 0.00512499968, 0.000849862176, 2.49999994e-05, 7.90569447e-06},
      0.9210423553163399);
  expect_frequencies(
      {.head_size = 16,
       .base = 150000,
       .scaling = RopeScaling::kYarn,
       .yarn = {.factor = 32, .original_length = 4096, .round_range = false}},
      {1, 0.225418001, 0.0508132726, 0.00679495931, 0.000456483918, 1.8188337e-05, 4.09997847e-06, 9.24208962e-07},
      1.3465735902799727);
}

TEST(RopeFrequencies, OfYarnStopAtTheLastDimension) {
  expect_frequencies(
      {.head_size = 16,
       .scaling = RopeScaling::kYarn,
       .yarn = {.factor = 4, .beta_fast = 1e6, .original_length = 1000000000}},
      {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00294666784, 0.000863636378, 0.000251544843},
      1.138629436111989);
}

// Printed by transformers 5.23 (ROPE_INIT_FUNCTIONS["dynamic"]).
TEST(RopeFrequencies, OfDynamicScalingFollowTheLengthOfSequences) {
  const auto settings = [](int64_t length) {
    return RopeSettings{.head_size = 16,
                        .scaling = RopeScaling::kDynamic,
                        .dynamic = {.factor = 4, .original_length = 64, .length = length}};
  };
  for (const int64_t length : {48, 64})
    EXPECT_EQ(rope_frequencies(settings(length)), rope_frequencies({.head_size = 16}));
  expect_frequencies(
      settings(160),
      {1, 0.239481375, 0.057351321, 0.0137345716, 0.00328917382, 0.00078769587, 0.000188638471, 4.51753949e-05}, 1);
}

// Printed by transformers 5.23 (ROPE_INIT_FUNCTIONS["longrope"]).
TEST(RopeFrequencies, OfLongRopeHaveADivisorEach) {
  const auto settings = [](double step) {
    RopeSettings result{.head_size = 16, .scaling = RopeScaling::kLong, .longrope = {.magnitude = 1.1547005383792517}};
    for (int i = 0; i < 8; ++i) result.longrope.factors.push_back(1 + i * step);
    return result;
  };
  expect_frequencies(
      settings(0.125),
      {1, 0.281091362, 0.0799999982, 0.0229983833, 0.00666666683, 0.00194601703, 0.000571428565, 0.000168654806},
      1.1547005383792517);
  expect_frequencies(
      settings(2),
      {1, 0.10540925, 0.0199999996, 0.0045175394, 0.00111111114, 0.000287479779, 7.69230755e-05, 2.10818507e-05},
      1.1547005383792517);
}

TEST(RopeFrequencies, InterpolationDivides) {
  const Values plain = rope_frequencies({.head_size = 20}),
               half = rope_frequencies({.head_size = 20, .interpolation_factor = 2.5});
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(half[i], plain[i] / 2.5);
}

TEST(RopeFrequencies, OfAnOddShareRotateOneElementMore) {
  const RopeSettings odd{.head_size = 10, .base = 100, .percent = 0.5};
  EXPECT_EQ(rope_rotated_size(odd), 6);
  const Values frequencies = rope_frequencies(odd);
  ASSERT_EQ(frequencies.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_DOUBLE_EQ(frequencies[i], std::pow(100, -0.4 * static_cast<double>(i)));
}

TEST(RopeFrequencies, RejectHeadsWithoutRoom) {
  EXPECT_THROW(rope_rotated_size({.head_size = 10, .percent = 0}), ConfigError);
  EXPECT_THROW(rope_rotated_size({.head_size = 10, .percent = 0.05}), ConfigError);
  EXPECT_THROW(rope_rotated_size({.head_size = 9}), ConfigError);
  EXPECT_THROW(rope_rotated_size({.head_size = 10, .percent = 0.5, .scaling = RopeScaling::kYarn}), ConfigError);
  EXPECT_THROW(rope_rotated_size({.head_size = 2, .scaling = RopeScaling::kDynamic}), ConfigError);
  EXPECT_THROW(rope_rotated_size({.head_size = 8, .scaling = RopeScaling::kLong}), ConfigError);
}

/// A table of some positions.
struct Table {
  Table(DType dtype, int64_t positions, int64_t half) {
    Values values;
    for (int64_t i = 0; i < half; ++i)
      values.push_back(std::pow(100, -static_cast<double>(i) / static_cast<double>(half)));
    frequencies = GuardedTensor(DType::kFloat64, {half}, values);
    cos = sin = GuardedTensor(dtype, {positions, half});
    rope_table(kTwoThreads,
               {.frequencies = frequencies.view(), .magnitude = 1.5, .cos = cos.view(), .sin = sin.view()});
  }
  GuardedTensor frequencies, cos, sin;
};

TEST(RopeTable, HoldsCosinesAndSinesOfAngles) {
  for (DType dtype : {DType::kFloat64, DType::kFloat32}) {
    const Table table(dtype, 3000, 6);
    for (int64_t p = 0; p < 3000; p += 7)
      for (int64_t i = 0; i < 6; ++i) {
        const double angle = static_cast<double>(p) * table.frequencies[i];
        EXPECT_NEAR(table.cos[p * 6 + i], 1.5 * std::cos(angle), tolerance(dtype));
        EXPECT_NEAR(table.sin[p * 6 + i], 1.5 * std::sin(angle), tolerance(dtype));
      }
    EXPECT_TRUE(table.cos.guards_are_intact() && table.sin.guards_are_intact());
  }
}

const int64_t s = 5, b = 2, n = 3;

TEST(Rope, MatchesTheFormulasInAllTypes) {
  const std::vector<int32_t> positions{0, 7, 1, 8, 2, 9, 0, 0, 1, 1};
  for (DType dtype : kFloatingTypes)
    for (RopePairs pairs : {RopePairs::kHalves, RopePairs::kInterleaved})
      for (int64_t d : {6, 70})
        for (int64_t rotated : {int64_t{4}, d / 2 * 2})
          for (bool has_positions : {false, true}) {
            Table table(compute_dtype(dtype), 16, rotated / 2);
            // Heads of a fused projection: strided in s, b and n.
            GuardedTensor x(dtype, {s, b, n, d}, random_values(s * b * n * d, 1), 3), y(dtype, {s, b, n, d}, {}, 1);
            const SequenceLayoutView layout{
                .s = s, .b = b, .positions = has_positions ? positions.data() : nullptr, .first_position = 4};
            rope(kTwoThreads, {.x = x.view(),
                               .y = y.view(),
                               .cos = table.cos.view(),
                               .sin = table.sin.view(),
                               .layout = layout,
                               .pairs = pairs});
            Values expected = x.values();
            for (int64_t head = 0; head < s * b * n; ++head)
              for (int64_t i = 0; i < rotated / 2; ++i) {
                const int64_t row = head / n, p = has_positions ? positions[row] : 4 + row / b;
                const bool halves = pairs == RopePairs::kHalves;
                const int64_t at_a = head * d + (halves ? i : 2 * i), at_b = halves ? at_a + rotated / 2 : at_a + 1;
                const double c = table.cos[p * rotated / 2 + i], sine = table.sin[p * rotated / 2 + i];
                expected[at_a] = x[at_a] * c - x[at_b] * sine;
                expected[at_b] = x[at_b] * c + x[at_a] * sine;
              }
            EXPECT_LE(largest_error(y, expected, tolerance(compute_dtype(dtype), 2, 4), epsilon(dtype)), 1);
            EXPECT_TRUE(y.guards_are_intact());
            rope(kOneThread, {.x = x.view(),
                              .y = x.view(),
                              .cos = table.cos.view(),
                              .sin = table.sin.view(),
                              .layout = layout,
                              .pairs = pairs});
            EXPECT_EQ(x.values(), y.values());
            EXPECT_TRUE(x.guards_are_intact());
          }
}

TEST(Rope, DoesNotDependOnTheNumberOfThreads) {
  Table table(DType::kFloat32, 40, 32);
  GuardedTensor x(DType::kBFloat16, {40, 2, 16, 64}, random_values(40 * 2 * 16 * 64, 1)), one = x, two = x;
  for (GuardedTensor* y : {&one, &two})
    rope(
        y == &one ? kOneThread : kTwoThreads,
        {.x = x.view(), .y = y->view(), .cos = table.cos.view(), .sin = table.sin.view(), .layout = {.s = 40, .b = 2}});
  EXPECT_EQ(one.values(), two.values());
  EXPECT_NE(one.values(), x.values());
}

TEST(Rope, InverseIsTheGradient) {
  Table table(DType::kFloat64, s, 3);
  for (RopePairs pairs : {RopePairs::kHalves, RopePairs::kInterleaved}) {
    GuardedTensor x(DType::kFloat64, {s, b, n, 8}, random_values(s * b * n * 8, 1)), y(DType::kFloat64, x.shape());
    GuardedTensor dy(DType::kFloat64, x.shape(), random_values(s * b * n * 8, 2)), dx(DType::kFloat64, x.shape());
    RopeArgs args{.x = x.view(),
                  .y = y.view(),
                  .cos = table.cos.view(),
                  .sin = table.sin.view(),
                  .layout = {.s = s, .b = b},
                  .pairs = pairs};
    const auto loss = [&] {
      rope(kOneThread, args);
      return testing::dot(y, dy);
    };
    RopeArgs backward = args;
    backward.x = dy.view();
    backward.y = dx.view();
    backward.inverse = true;
    rope(kOneThread, backward);
    EXPECT_LE(testing::gradient_error(x, dx, loss), testing::kGradientTolerance);
  }
}

}  // namespace
}  // namespace megatron::kernels
