#include "megatron/kernels/cross_entropy.h"

#include <gtest/gtest.h>

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

/// Logits of s x b tokens over v columns, of which the last v - vocab_size are padding.
struct LossCase {
  LossCase(DType dtype, int64_t v, int64_t vocab_size, double label_smoothing = 0)
      : v(v), vocab_size(vocab_size), label_smoothing(label_smoothing), statistics(compute_dtype(dtype)) {
    logits = GuardedTensor(dtype, {s, b, v}, random_values(t * v, 1, 3));
    Values ids;
    for (int64_t i = 0; i < t; ++i)
      ids.push_back(std::floor(uniform(RandomKey::from_seed(2), i) * static_cast<double>(vocab_size)));
    targets = GuardedTensor(DType::kInt64, {b, s}, ids);  // as the loader has them
    mask = GuardedTensor(DType::kFloat32, {s, b}, {1, 0, 1, 1, 0.5, 1});
    d_loss = GuardedTensor(statistics, {s, b}, random_values(t, 3));
    for (GuardedTensor* x : {&max, &sum_exp, &target, &total, &loss}) *x = GuardedTensor(statistics, {s, b});
    d_logits = GuardedTensor(dtype, {s, b, v});
  }
  View transposed_targets() {
    View view = targets.view();
    std::swap(view.shape[0], view.shape[1]);
    std::swap(view.strides[0], view.strides[1]);
    return view;
  }
  void forward(const CpuStream& stream) {
    cross_entropy_forward(stream, {.logits = logits.view(),
                                   .columns = {.first_id = 0, .vocab_size = vocab_size},
                                   .targets = transposed_targets(),
                                   .loss_mask = mask.view(),
                                   .label_smoothing = label_smoothing,
                                   .max = max.view(),
                                   .sum_exp = sum_exp.view(),
                                   .loss = loss.view()});
  }
  void backward(const CpuStream& stream, const View& out) {
    cross_entropy_backward(stream, {.logits = logits.view(),
                                    .columns = {.first_id = 0, .vocab_size = vocab_size},
                                    .targets = transposed_targets(),
                                    .max = max.view(),
                                    .sum_exp = sum_exp.view(),
                                    .loss_mask = mask.view(),
                                    .d_loss = d_loss.view(),
                                    .label_smoothing = label_smoothing,
                                    .d_logits = out});
  }
  int64_t target_of(int64_t row) const { return static_cast<int64_t>(targets[row % b * s + row / b]); }
  /// From the formulas; d_logits for d_loss.
  void reference(Values& losses, Values& gradients) const {
    losses.assign(t, 0);
    gradients.assign(t * v, 0);
    for (int64_t row = 0; row < t; ++row) {
      double largest = -HUGE_VAL, sum = 0;
      for (int64_t i = 0; i < vocab_size; ++i) largest = std::max(largest, logits[row * v + i]);
      for (int64_t i = 0; i < vocab_size; ++i) sum += std::exp(logits[row * v + i] - largest);
      for (int64_t i = 0; i < vocab_size; ++i) {
        const double log_p = logits[row * v + i] - largest - std::log(sum);
        const double wanted =
            (i == target_of(row) ? 1 - label_smoothing : 0) + label_smoothing / static_cast<double>(vocab_size);
        losses[row] -= mask[row] * wanted * log_p;
        gradients[row * v + i] = mask[row] * d_loss[row] * (std::exp(log_p) - wanted);
      }
    }
  }
  bool guards_are_intact() const {
    for (const GuardedTensor* x : {&max, &sum_exp, &target, &total, &loss, &d_logits, &logits})
      if (!x->guards_are_intact()) return false;
    return true;
  }

  static constexpr int64_t s = 3, b = 2, t = s * b;
  int64_t v, vocab_size;
  double label_smoothing;
  DType statistics;
  GuardedTensor logits, targets, mask, d_loss, max, sum_exp, target, total, loss, d_logits;
};

TEST(CrossEntropy, MatchesTheFormulasInAllTypes) {
  for (DType dtype : kFloatingTypes)
    for (int64_t v : {7, 20000})
      for (int64_t padding : {0, 5})
        for (double smoothing : {0.0, 0.1}) {
          LossCase c(dtype, v, v - padding, smoothing);
          c.forward(kTwoThreads);
          c.backward(kTwoThreads, c.d_logits.view());
          Values losses, gradients;
          c.reference(losses, gradients);
          const double bound = tolerance(c.statistics, v, 1) * 4;
          EXPECT_LE(largest_error(c.loss, losses, bound, 0), 1) << name_of(dtype) << " " << v;
          // An error in x - max is one of p relative to p, which is at most 1.
          EXPECT_LE(largest_error(c.d_logits, gradients, tolerance(c.statistics, 16, 1), epsilon(dtype)), 1)
              << name_of(dtype) << " " << v;
          for (int64_t row = 0; row < c.t; ++row)
            for (int64_t i = c.vocab_size; i < v; ++i) EXPECT_EQ(c.d_logits[row * v + i], 0);
          EXPECT_EQ(c.loss[1], 0);  // masked
          EXPECT_TRUE(c.guards_are_intact());
        }
}

TEST(CrossEntropy, GradientMayOverwriteTheLogits) {
  for (DType dtype : kFloatingTypes) {
    LossCase c(dtype, 1500, 1490, 0.1);
    c.forward(kOneThread);
    c.backward(kOneThread, c.d_logits.view());
    c.backward(kTwoThreads, c.logits.view());
    EXPECT_EQ(c.logits.values(), c.d_logits.values());
  }
}

TEST(CrossEntropy, GradientMatchesFiniteDifferences) {
  for (double smoothing : {0.0, 0.2}) {
    LossCase c(DType::kFloat64, 9, 7, smoothing);
    c.forward(kOneThread);
    c.backward(kOneThread, c.d_logits.view());
    const auto loss = [&] {
      c.forward(kOneThread);
      return testing::dot(c.loss, c.d_loss);
    };
    EXPECT_LE(testing::gradient_error(c.logits, c.d_logits, loss), testing::kGradientTolerance);
  }
}

/// Two shards of the vocabulary, reduced as two tensor parallel ranks would, give the loss and gradient of the whole.
TEST(CrossEntropy, VocabularyShardsAddUpToTheWhole) {
  for (DType dtype : kFloatingTypes) {
    LossCase c(dtype, 1200, 1100, 0.1);  // the second shard has padding
    c.forward(kOneThread);
    c.backward(kOneThread, c.d_logits.view());
    const Values whole_loss = c.loss.values(), whole_gradient = c.d_logits.values();
    const auto shard = [&](View view, int64_t rank) {
      view.shape[2] = 600;
      view.data = static_cast<char*>(view.data) + rank * 600 * size_of(dtype);
      return view;
    };
    std::vector<GuardedTensor> parts[4];
    for (auto& part : parts) part.assign(2, GuardedTensor(c.statistics, {c.s, c.b}));
    const auto columns = [](int64_t rank) { return VocabularyColumns{.first_id = rank * 600, .vocab_size = 1100}; };
    for (int64_t rank = 0; rank < 2; ++rank)
      cross_entropy_max(
          kOneThread, {.logits = shard(c.logits.view(), rank), .columns = columns(rank), .max = parts[0][rank].view()});
    for (int64_t i = 0; i < c.t; ++i) c.max.store(i, std::max(parts[0][0][i], parts[0][1][i]));
    for (int64_t rank = 0; rank < 2; ++rank)
      cross_entropy_sums(kTwoThreads, {.logits = shard(c.logits.view(), rank),
                                       .columns = columns(rank),
                                       .targets = c.transposed_targets(),
                                       .max = c.max.view(),
                                       .sum_exp = parts[1][rank].view(),
                                       .target = parts[2][rank].view(),
                                       .total = parts[3][rank].view()});
    for (int64_t i = 0; i < c.t; ++i) {
      c.sum_exp.store(i, parts[1][0][i] + parts[1][1][i]);
      c.target.store(i, parts[2][0][i] + parts[2][1][i]);
      c.total.store(i, parts[3][0][i] + parts[3][1][i]);
    }
    cross_entropy_loss(kOneThread, {.sum_exp = c.sum_exp.view(),
                                    .target = c.target.view(),
                                    .total = c.total.view(),
                                    .loss_mask = c.mask.view(),
                                    .label_smoothing = 0.1,
                                    .vocab_size = 1100,
                                    .loss = c.loss.view()});
    EXPECT_LE(largest_error(c.loss, whole_loss, tolerance(c.statistics, 8, 8), 0), 1) << name_of(dtype);
    for (int64_t rank = 0; rank < 2; ++rank)
      cross_entropy_backward(kOneThread, {.logits = shard(c.logits.view(), rank),
                                          .columns = columns(rank),
                                          .targets = c.transposed_targets(),
                                          .max = c.max.view(),
                                          .sum_exp = c.sum_exp.view(),
                                          .loss_mask = c.mask.view(),
                                          .d_loss = c.d_loss.view(),
                                          .label_smoothing = 0.1,
                                          .d_logits = shard(c.d_logits.view(), rank)});
    EXPECT_LE(largest_error(c.d_logits, whole_gradient, tolerance(c.statistics), epsilon(dtype)), 1) << name_of(dtype);
    EXPECT_TRUE(c.guards_are_intact());
  }
}

TEST(CrossEntropy, ShardOfPaddingAloneIsNeutral) {
  GuardedTensor logits(DType::kFloat32, {2, 4}, random_values(8, 1)), targets(DType::kInt32, {2}, {1, 2});
  GuardedTensor max(DType::kFloat32, {2}), sum(DType::kFloat32, {2}), target(DType::kFloat32, {2});
  const VocabularyColumns columns{.first_id = 8, .vocab_size = 8};
  cross_entropy_max(kOneThread, {.logits = logits.view(), .columns = columns, .max = max.view()});
  EXPECT_EQ(max.values(), (Values{-HUGE_VAL, -HUGE_VAL}));
  max.set({1, 2});
  cross_entropy_sums(kOneThread, {.logits = logits.view(),
                                  .columns = columns,
                                  .targets = targets.view(),
                                  .max = max.view(),
                                  .sum_exp = sum.view(),
                                  .target = target.view()});
  EXPECT_EQ(sum.values(), (Values{0, 0}));
  EXPECT_EQ(target.values(), (Values{0, 0}));
}

TEST(CrossEntropy, OneGradientMayStandForAllTokens) {
  LossCase c(DType::kFloat32, 40, 40);
  c.d_loss.set(Values(6, 0.25));
  c.forward(kOneThread);
  c.backward(kOneThread, c.d_logits.view());
  const Values expected = c.d_logits.values();
  View one = c.d_loss.view();
  one.strides[0] = one.strides[1] = 0;
  cross_entropy_backward(kOneThread, {.logits = c.logits.view(),
                                      .columns = {.first_id = 0, .vocab_size = 40},
                                      .targets = c.transposed_targets(),
                                      .max = c.max.view(),
                                      .sum_exp = c.sum_exp.view(),
                                      .loss_mask = c.mask.view(),
                                      .d_loss = one,
                                      .d_logits = c.d_logits.view()});
  EXPECT_EQ(c.d_logits.values(), expected);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflowAndNanShows) {
  GuardedTensor logits(DType::kFloat32, {2, 3}, {3e4, 2.9999e4, -3e4, 0, std::nan(""), 1});
  GuardedTensor targets(DType::kInt32, {2}, {0, 0});
  GuardedTensor max(DType::kFloat32, {2}), sum(DType::kFloat32, {2}), loss(DType::kFloat32, {2});
  cross_entropy_forward(kOneThread, {.logits = logits.view(),
                                     .columns = {.first_id = 0, .vocab_size = 3},
                                     .targets = targets.view(),
                                     .max = max.view(),
                                     .sum_exp = sum.view(),
                                     .loss = loss.view()});
  EXPECT_NEAR(loss[0], std::log1p(std::exp(-1.0)), 1e-6);
  EXPECT_TRUE(std::isnan(loss[1]));
}

}  // namespace
}  // namespace megatron::kernels
