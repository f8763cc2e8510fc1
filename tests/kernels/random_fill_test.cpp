#include "megatron/kernels/random_fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;

constexpr RandomKey kKey{0x1234};

TEST(FillNormal, GivesEachElementItsNumberWhereverTheRowBegins) {
  for (const int64_t columns : {1, 3, 4, 255, 256, 257, 1025})
    for (const int64_t offset : {0, 1, 6, 1023}) {
      const int64_t rows = 3, stride = columns + 5;
      GuardedTensor y(DType::kFloat64, {rows, columns});
      fill_normal({.num_threads = 2},
                  {.y = y.view(), .key = kKey, .global_strides = {stride, 1}, .global_offset = offset, .std = 0.5});
      for (int64_t i = 0; i < rows * columns; ++i)
        ASSERT_EQ(y[i], 0.5 * normal(kKey, offset + i / columns * stride + i % columns)) << columns << ' ' << offset;
    }
}

TEST(FillNormal, RoundsToTheTypeOfTheTensor) {
  GuardedTensor y(DType::kBFloat16, {1, 64});
  fill_normal({.num_threads = 1}, {.y = y.view(), .key = kKey, .global_strides = {64, 1}});
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(y[i], static_cast<double>(BFloat16(normal(kKey, i))));
}

TEST(Normal, HasTheMomentsOfTheNormalLaw) {
  constexpr int64_t kCount = 400'000;
  double sums[4] = {};
  for (int64_t i = 0; i < kCount; ++i) {
    const double z = normal(kKey, i);
    for (double power = z; double& sum : sums) sum += power, power *= z;
  }
  // Five standard deviations of a mean of z, z^2, z^3, z^4, whose variances are 1, 2, 15, 96.
  const double expected[4] = {0, 1, 0, 3}, variances[4] = {1, 2, 15, 96};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(sums[i] / kCount, expected[i], 5 * std::sqrt(variances[i] / kCount)) << i;
}

TEST(BoxMuller, AgreesWithTheMathematicalLibrary) {
  const double eps = epsilon(DType::kFloat64);
  const auto check = [&](uint32_t r) {
    const double u = (r + 0.5) * 0x1p-32, angle = 2 * std::numbers::pi * 0x1p-32 * r;
    const SineCosine turned = turn(r);
    EXPECT_NEAR(series_log(u), std::log(u), 2 * eps * std::abs(std::log(u))) << r;
    // The library is given an angle that is rounded to eps / 2 of up to 2 pi.
    EXPECT_NEAR(turned.sine, std::sin(angle), 6 * eps) << r;
    EXPECT_NEAR(turned.cosine, std::cos(angle), 6 * eps) << r;
  };
  for (uint64_t r = 0; r < uint64_t{1} << 32; r += 99991) check(static_cast<uint32_t>(r));
  for (int eighth = 0; eighth < 8; ++eighth)
    for (uint32_t near : {0U, 1U, ~0U}) check((static_cast<uint32_t>(eighth) << 29) + near);
}

}  // namespace
}  // namespace megatron::kernels
