#include "megatron/kernels/dropout.h"

#include <gmock/gmock.h>

#include "megatron/kernels/cpu/dropout_mask.h"
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

const StepState kState{.step = 12345678901};

/// Rows 3.. of a sequence of 40, columns 5.. of the batch.
DropoutMask mask_of(double rate, int64_t b) {
  return {.rate = rate,
          .key = RandomKey::from_seed(42).at("layer.3").at("hidden"),
          .state = &kState,
          .rows = {.first_sample = 5, .sequence_length = 40, .first_position = 3, .b = b}};
}
double factor(const DropoutMask& mask, int64_t row, int64_t feature) {
  const uint32_t value = draw(mask.key, mask.state->step, mask.rows(row), mask.first_feature + feature);
  return value < dropout_threshold(mask.rate) ? 0 : 1 / (1 - mask.rate);
}

// Random123's known answers for philox4x32-10.
TEST(Philox, GivesTheKnownAnswers) {
  using ::testing::ElementsAre;
  EXPECT_THAT(philox(0, {0, 0, 0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox(~uint64_t{0}, {~0u, ~0u, ~0u, ~0u}), ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(DropoutMask, VectorDrawsEqualTheScalarDefinition) {
  for (int64_t first_feature : {0, 4096, 4097, 4099})
    for (int64_t begin : {0, 1, 6})
      for (int64_t n : {1, 3, 64, 1024}) {
        DropoutMask mask = mask_of(0.3, 2);
        mask.first_feature = first_feature;
        mask.rows.first_sample = int64_t{1} << 40;
        std::vector<float> factors(n);
        dropout_factors<float>(mask, 7, begin, n, factors.data());
        for (int64_t i = 0; i < n; ++i) ASSERT_EQ(factors[i], static_cast<float>(factor(mask, 7, begin + i)));
      }
}

TEST(BiasDropoutAdd, MatchesTheDefinitionInAllTypes) {
  const Shape shape{4, 3, 1030};
  const int64_t n = shape.num_elements(), h = shape[-1];
  for (DType dtype : kFloatingTypes)
    for (double rate : {0.0, 0.1})
      for (bool has_bias : {false, true})
        for (bool has_residual : {false, true}) {
          GuardedTensor x(dtype, shape, random_values(n, 1), 3), bias(dtype, {h}, random_values(h, 2));
          GuardedTensor residual(dtype, shape, random_values(n, 3)), y(dtype, shape, {}, 2), dx(dtype, shape);
          GuardedTensor dbias(compute_dtype(dtype), {h}, Values(h, 1));
          auto workspace = testing::workspace_of(bias_dropout_add_backward_workspace_bytes(12, h, dtype));
          const DropoutMask mask = mask_of(rate, 3);
          bias_dropout_add_forward(kTwoThreads, {.x = x.view(),
                                                 .bias = has_bias ? bias.view() : View{},
                                                 .residual = has_residual ? residual.view() : View{},
                                                 .y = y.view(),
                                                 .dropout = mask});
          bias_dropout_add_backward(kTwoThreads, {.dy = x.view(),
                                                  .dx = dx.view(),
                                                  .dbias = has_bias ? dbias.view() : View{},
                                                  .accumulate = true,
                                                  .workspace = workspace.view(),
                                                  .dropout = mask});
          Values ys, dxs, dbiases(h, 1);
          for (int64_t i = 0; i < n; ++i) {
            const double kept = rate == 0 ? 1 : factor(mask, i / h, i % h);
            ys.push_back((x[i] + (has_bias ? bias[i % h] : 0)) * kept + (has_residual ? residual[i] : 0));
            dxs.push_back(x[i] * kept);
            if (has_bias) dbiases[i % h] += dxs.back();
          }
          const double bound = tolerance(compute_dtype(dtype), 3, 2);
          EXPECT_LE(largest_error(y, ys, bound, epsilon(dtype)), 1) << name_of(dtype);
          EXPECT_LE(largest_error(dx, dxs, bound, epsilon(dtype)), 1);
          EXPECT_LE(largest_error(dbias, dbiases, 12 * bound, 0), 1);
          EXPECT_TRUE(y.guards_are_intact() && dx.guards_are_intact() && dbias.guards_are_intact() &&
                      workspace.guards_are_intact());
        }
}

TEST(BiasDropoutAdd, KeepsTheAskedShareOfElements) {
  const int64_t n = 1 << 20;
  GuardedTensor x(DType::kFloat32, {1024, 1024}, Values(n, 1)), y(DType::kFloat32, {1024, 1024});
  for (double rate : {0.1, 0.5, 0.9}) {
    bias_dropout_add_forward(kTwoThreads, {.x = x.view(), .y = y.view(), .dropout = mask_of(rate, 1)});
    double kept = 0, neighbours = 0;
    for (int64_t i = 0; i < n; ++i) {
      kept += y[i] != 0;
      neighbours += i > 0 && y[i] != 0 && y[i - 1] != 0;
    }
    const double deviation = std::sqrt(rate * (1 - rate) * n), pair = (1 - rate) * (1 - rate);
    EXPECT_NEAR(kept, (1 - rate) * n, 5 * deviation);
    EXPECT_NEAR(neighbours, pair * n, 5 * std::sqrt(3 * pair * n));  // neighbouring pairs overlap
  }
}

/// A part of a tensor, computed as a shard would, has the mask of the whole.
TEST(BiasDropoutAdd, MaskDoesNotDependOnTheCut) {
  const int64_t s = 8, b = 2, h = 22;
  const Values ones(s * b * h, 1);
  GuardedTensor x(DType::kFloat32, {s, b, h}, ones), whole(DType::kFloat32, {s, b, h});
  const DropoutMask mask = mask_of(0.4, b);
  bias_dropout_add_forward(kOneThread, {.x = x.view(), .y = whole.view(), .dropout = mask});
  {  // sequence positions 4..7
    GuardedTensor part(DType::kFloat32, {4, b, h});
    DropoutMask shard = mask;
    shard.rows.first_position += 4;
    View rows = x.view();
    rows.shape[0] = 4;
    bias_dropout_add_forward(kOneThread, {.x = rows, .y = part.view(), .dropout = shard});
    for (int64_t i = 0; i < 4 * b * h; ++i) EXPECT_EQ(part[i], whole[4 * b * h + i]);
  }
  {  // column 1 of the batch
    GuardedTensor part(DType::kFloat32, {s, 1, h});
    DropoutMask shard = mask;
    shard.rows.first_sample += 1;
    shard.rows.b = 1;
    View rows = x.view();
    rows.shape[1] = 1;
    bias_dropout_add_forward(kOneThread, {.x = rows, .y = part.view(), .dropout = shard});
    for (int64_t i = 0; i < s * h; ++i) EXPECT_EQ(part[i], whole[(i / h * b + 1) * h + i % h]);
  }
  {  // features 11..21
    GuardedTensor part(DType::kFloat32, {s, b, 11});
    DropoutMask shard = mask;
    shard.first_feature = 11;
    View columns = x.view();
    columns.shape[2] = 11;
    bias_dropout_add_forward(kOneThread, {.x = columns, .y = part.view(), .dropout = shard});
    for (int64_t i = 0; i < s * b * 11; ++i) EXPECT_EQ(part[i], whole[i / 11 * h + 11 + i % 11]);
  }
  {  // routed rows
    const int32_t list[] = {13, 2, 7};
    GuardedTensor part(DType::kFloat32, {3, h});
    DropoutMask routed = mask;
    routed.rows.list = list;
    View rows = part.view();
    rows.data = x.view().data;
    bias_dropout_add_forward(kOneThread, {.x = rows, .y = part.view(), .dropout = routed});
    for (int64_t i = 0; i < 3 * h; ++i) EXPECT_EQ(part[i], whole[list[i / h] * h + i % h]);
  }
}

TEST(BiasDropoutAdd, DoesNotDependOnTheNumberOfThreads) {
  const int64_t n = 300 * 301;
  GuardedTensor x(DType::kBFloat16, {300, 301}, random_values(n, 1)),
      bias(DType::kBFloat16, {301}, random_values(301, 2));
  auto workspace = testing::workspace_of(bias_dropout_add_backward_workspace_bytes(300, 301, DType::kBFloat16));
  Values results[2][3];
  for (int threads : {1, 2}) {
    GuardedTensor y(DType::kBFloat16, {300, 301}), dx = y, dbias(DType::kFloat32, {301});
    const CpuStream stream{.num_threads = threads};
    const DropoutMask mask = mask_of(0.1, 1);
    bias_dropout_add_forward(stream, {.x = x.view(), .bias = bias.view(), .y = y.view(), .dropout = mask});
    bias_dropout_add_backward(
        stream,
        {.dy = x.view(), .dx = dx.view(), .dbias = dbias.view(), .workspace = workspace.view(), .dropout = mask});
    results[threads - 1][0] = y.values();
    results[threads - 1][1] = dx.values();
    results[threads - 1][2] = dbias.values();
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(results[0][i], results[1][i]);
}

TEST(BiasDropoutAdd, GradientsMatchFiniteDifferences) {
  GuardedTensor x(DType::kFloat64, {6, 9}, random_values(54, 1)), bias(DType::kFloat64, {9}, random_values(9, 2));
  GuardedTensor dy(DType::kFloat64, {6, 9}, random_values(54, 3)), y(DType::kFloat64, {6, 9});
  GuardedTensor dx(DType::kFloat64, {6, 9}), dbias(DType::kFloat64, {9});
  auto workspace = testing::workspace_of(bias_dropout_add_backward_workspace_bytes(6, 9, DType::kFloat64));
  const DropoutMask mask = mask_of(0.3, 2);
  const auto loss = [&] {
    bias_dropout_add_forward(
        kOneThread, {.x = x.view(), .bias = bias.view(), .residual = dy.view(), .y = y.view(), .dropout = mask});
    return testing::dot(y, dy);
  };
  bias_dropout_add_backward(
      kOneThread,
      {.dy = dy.view(), .dx = dx.view(), .dbias = dbias.view(), .workspace = workspace.view(), .dropout = mask});
  EXPECT_LE(testing::gradient_error(x, dx, loss), testing::kGradientTolerance);
  EXPECT_LE(testing::gradient_error(bias, dbias, loss), testing::kGradientTolerance);
}

TEST(BiasDropoutAdd, StepsAndKeysDrawOtherMasks) {
  GuardedTensor x(DType::kFloat32, {64, 64}, Values(4096, 1));
  std::vector<Values> results;
  const StepState next{.step = kState.step + 1};
  for (int variant = 0; variant < 3; ++variant) {
    DropoutMask mask = mask_of(0.5, 1);
    if (variant == 1) mask.state = &next;
    if (variant == 2) mask.key = mask.key.at("other");
    GuardedTensor y(DType::kFloat32, {64, 64});
    bias_dropout_add_forward(kOneThread, {.x = x.view(), .y = y.view(), .dropout = mask});
    for (const Values& other : results) {
      double equal = 0;
      for (int64_t i = 0; i < 4096; ++i) equal += other[i] == y[i];
      EXPECT_NEAR(equal, 2048, 5 * 32);
    }
    results.push_back(y.values());
  }
}

TEST(BiasDropoutAdd, BoundedRowsBeyondTheCountAreLeft) {
  const int32_t count = 2;
  GuardedTensor x(DType::kBFloat16, {4, 8}, Values(32, 1)), y(DType::kBFloat16, {4, 8}, Values(32, 9));
  bias_dropout_add_forward(kOneThread, {.x = x.bounded(&count), .residual = x.bounded(&count), .y = y.bounded(&count)});
  for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(y[i], i < 16 ? 2 : 9);
}

}  // namespace
}  // namespace megatron::kernels
