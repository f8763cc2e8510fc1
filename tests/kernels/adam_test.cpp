#include "megatron/kernels/adam.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "tests/kernels/cpu_streams.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {
namespace {
using testing::GuardedTensor;
using testing::largest_error;
using testing::random_values;
using testing::tolerance;
using Values = std::vector<double>;

/// Buffers of an optimizer over n elements.
struct AdamCase {
  AdamCase(int64_t n, DType master, DType gradient_type, DType moment_type, DType model_type)
      : parameter(master, {n}, random_values(n, 1)),
        gradient(gradient_type, {n}, random_values(n, 2)),
        m(moment_type, {n}, Values(n, 0)),
        v(moment_type, {n}, Values(n, 0)),
        weight(model_type, {n}) {}
  AdamArgs args() {
    return {.parameter = parameter.view(),
            .gradient = gradient.view(),
            .first_moment = m.view(),
            .second_moment = v.view(),
            .model_weight = weight.view(),
            .beta1 = 0.9,
            .beta2 = 0.95,
            .epsilon = 1e-6,
            .state = &state};
  }
  void start_step(int64_t t) {
    state.learning_rate = 1e-2 * static_cast<double>(t);
    state.weight_decay = 0.1;
    state.inverse_scale = 0.5;
    state.clip_factor = 0.75;
    state.bias_correction1 = 1 - std::pow(0.9, t);
    state.bias_correction2 = 1 - std::pow(0.95, t);
  }
  bool guards_are_intact() const {
    for (const GuardedTensor* x : {&parameter, &gradient, &m, &v, &weight})
      if (!x->guards_are_intact()) return false;
    return true;
  }
  StepState state;
  GuardedTensor parameter, gradient, m, v, weight;
};

TEST(Adam, FollowsTheFormulaOverSteps) {
  const int64_t n = 2077;
  for (DType master : {DType::kFloat64, DType::kFloat32})
    for (DType low : {DType::kBFloat16, DType::kFloat16, DType::kFloat32})
      for (bool decoupled : {true, false}) {
        const bool is_double = master == DType::kFloat64;
        AdamCase c(n, master, is_double ? master : low, master, is_double ? master : low);
        Values p = c.parameter.values(), m(n, 0), v(n, 0);
        for (int64_t t = 1; t <= 5; ++t) {
          c.start_step(t);
          AdamArgs args = c.args();
          args.decoupled_weight_decay = decoupled;
          args.learning_rate_multiplier = 0.5;
          args.weight_decay_multiplier = 2;
          adam(kTwoThreads, args);
          const double lr = 0.5 * c.state.learning_rate, wd = 0.2;
          for (int64_t i = 0; i < n; ++i) {
            const double g = c.gradient[i] * 0.375 + (decoupled ? 0 : wd * p[i]);
            m[i] = 0.9 * m[i] + 0.1 * g;
            v[i] = 0.95 * v[i] + 0.05 * g * g;
            const double update = m[i] / c.state.bias_correction1 / (std::sqrt(v[i] / c.state.bias_correction2) + 1e-6);
            p[i] -= lr * (update + (decoupled ? wd * p[i] : 0));
          }
        }
        EXPECT_LE(largest_error(c.parameter, p, tolerance(master, 5), epsilon(master)), 1);
        EXPECT_LE(largest_error(c.m, m, tolerance(master, 5), 0), 1);
        EXPECT_LE(largest_error(c.v, v, tolerance(master, 5), 0), 1);
        EXPECT_EQ(c.weight.values(), GuardedTensor(c.weight.dtype(), {n}, c.parameter.values()).values());
        EXPECT_TRUE(c.guards_are_intact());
      }
}

TEST(Adam, MomentsMayBeStoredInLowPrecision) {
  AdamCase c(1100, DType::kFloat32, DType::kFloat32, DType::kBFloat16, DType::kBFloat16);
  c.start_step(1);
  adam(kTwoThreads, c.args());
  Values m, v;
  for (int64_t i = 0; i < 1100; ++i) {
    m.push_back(0.1 * 0.375 * c.gradient[i]);
    v.push_back(0.05 * std::pow(0.375 * c.gradient[i], 2));
  }
  EXPECT_LE(largest_error(c.m, m, 0, epsilon(DType::kBFloat16)), 1);
  EXPECT_LE(largest_error(c.v, v, 0, epsilon(DType::kBFloat16)), 1);
  EXPECT_TRUE(c.guards_are_intact());
}

// torch.optim.AdamW of torch 2.11 in fp64: lr 1e-2, betas 0.9 and 0.95, eps 1e-6, weight decay 0.1, two steps from
// 0.5, -1.25 and 2 with gradients 0.3, -0.02, 0 and then -0.1, 0.4, 0.05.
TEST(Adam, GivesTorchsNumbers) {
  GuardedTensor p(DType::kFloat64, {3}, {0.5, -1.25, 2}), g(DType::kFloat64, {3}), m(DType::kFloat64, {3}, {0, 0, 0});
  GuardedTensor v(DType::kFloat64, {3}, {0, 0, 0});
  StepState state{.learning_rate = 1e-2, .weight_decay = 0.1};
  const Values gradients[] = {{0.3, -0.02, 0}, {-0.1, 0.4, 0.05}};
  for (int t = 1; t <= 2; ++t) {
    g.set(gradients[t - 1]);
    state.bias_correction1 = 1 - std::pow(0.9, t);
    state.bias_correction2 = 1 - std::pow(0.95, t);
    adam(kOneThread, {.parameter = p.view(),
                      .gradient = g.view(),
                      .first_moment = m.view(),
                      .second_moment = v.view(),
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .epsilon = 1e-6,
                      .state = &state});
  }
  const Values expected{0.4849674845509005, -1.244522272963331, 1.9886526052343891};
  EXPECT_LE(largest_error(p, expected, tolerance(DType::kFloat64), 0), 1);
}

TEST(Adam, ChangesNothingIfAGradientIsNotFinite) {
  AdamCase c(100, DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kBFloat16);
  c.start_step(1);
  c.state.found_inf = 1;
  const Values p = c.parameter.values(), weight = c.weight.values();
  adam(kOneThread, c.args());
  EXPECT_EQ(c.parameter.values(), p);
  EXPECT_EQ(c.weight.values(), weight);
  EXPECT_EQ(c.m.values(), Values(100, 0));
}

TEST(Adam, AGroupMayHaveALearningRateOfItsOwn) {
  AdamCase a(64, DType::kFloat32, DType::kFloat32, DType::kFloat32, DType::kFloat32), b = a;
  a.start_step(1);
  b.start_step(1);
  const double own = 0.25;
  b.state.learning_rate = 99;
  a.state.learning_rate = own;
  AdamArgs args = b.args();
  args.learning_rate = &own;
  adam(kOneThread, a.args());
  adam(kOneThread, args);
  EXPECT_EQ(a.parameter.values(), b.parameter.values());
}

TEST(Adam, DoesNotDependOnThreadsOrOnTheSplitOfTheBuffer) {
  const int64_t n = 100000;
  AdamCase whole(n, DType::kFloat32, DType::kBFloat16, DType::kBFloat16, DType::kBFloat16), parts = whole;
  whole.start_step(3);
  parts.start_step(3);
  adam(kTwoThreads, whole.args());
  for (int64_t begin : {int64_t{0}, int64_t{33333}}) {
    const int64_t length = begin == 0 ? 33333 : n - 33333;
    AdamArgs args = parts.args();
    const auto cut = [&](auto& view) {
      view.shape[0] = length;
      using Byte = std::conditional_t<std::is_same_v<std::decay_t<decltype(view)>, View>, char, const char>;
      view.data = static_cast<Byte*>(view.data) + begin * size_of(view.dtype);
    };
    cut(args.parameter);
    cut(args.gradient);
    cut(args.first_moment);
    cut(args.second_moment);
    cut(args.model_weight);
    args.rounding.numbers.first = begin;
    adam(kOneThread, args);
  }
  EXPECT_EQ(whole.parameter.values(), parts.parameter.values());
  EXPECT_EQ(whole.v.values(), parts.v.values());
  EXPECT_EQ(whole.weight.values(), parts.weight.values());
}

TEST(Adam, RejectsLowPrecisionMasters) {
  for (DType low : {DType::kBFloat16, DType::kFloat16}) {
    AdamCase c(8, low, low, DType::kFloat32, low);
    EXPECT_THROW(adam(kOneThread, c.args()), DtypeError);
  }
}

/// Lengths on both sides of a chunk and of none, one operand after the other in one table.
TEST(Adam, StepsARangeOfATableLikeASingleOne) {
  const double rate = 0.03;
  for (bool halves : {false, true}) {
    std::vector<std::unique_ptr<AdamCase>> alone, together;
    std::vector<GuardedTensor> remainders;
    std::vector<OptimizerRange> table;
    const std::vector<int64_t> sizes = {1, kRangeChunk, 0, kRangeChunk + 1, 77};
    remainders.reserve(2 * sizes.size());
    int64_t num_chunks = 0;
    for (int64_t n : sizes) {
      const DType model = halves ? DType::kBFloat16 : DType::kFloat16;
      for (auto* cases : {&alone, &together}) {
        cases->push_back(std::make_unique<AdamCase>(n, DType::kFloat32, DType::kFloat32, DType::kBFloat16, model));
        cases->back()->start_step(3);
        remainders.emplace_back(DType::kUInt8, Shape{n, 2});
      }
      const AdamArgs args = together.back()->args();
      table.push_back({.parameter = halves ? nullptr : args.parameter.data,
                       .remainder = halves ? remainders.back().view().data : nullptr,
                       .gradient = args.gradient.data,
                       .first_moment = args.first_moment.data,
                       .second_moment = args.second_moment.data,
                       .model_weight = args.model_weight.data,
                       .learning_rate = n % 2 == 0 ? &rate : nullptr,
                       .weight_decay_multiplier = n % 3 == 0 ? 0.0 : 1.0,
                       .size = n,
                       .first_chunk = num_chunks});
      num_chunks += num_range_chunks(n);
      AdamArgs one = alone.back()->args();
      one.learning_rate = table.back().learning_rate;
      one.weight_decay_multiplier = table.back().weight_decay_multiplier;
      if (halves) one.parameter = {}, one.remainder = remainders[remainders.size() - 2].view();
      adam(kTwoThreads, one);
    }
    adam_ranges(kTwoThreads, {.ranges = {.table = table.data(),
                                         .num_ranges = static_cast<int64_t>(table.size()),
                                         .num_chunks = num_chunks,
                                         .dtypes = {.has_remainders = halves,
                                                    .model_weight = halves ? DType::kBFloat16 : DType::kFloat16,
                                                    .first_moment = DType::kBFloat16,
                                                    .second_moment = DType::kBFloat16}},
                              .beta1 = 0.9,
                              .beta2 = 0.95,
                              .epsilon = 1e-6,
                              .state = &together[0]->state});
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(together[i]->parameter.values(), alone[i]->parameter.values());
      EXPECT_EQ(together[i]->m.values(), alone[i]->m.values());
      EXPECT_EQ(together[i]->v.values(), alone[i]->v.values());
      EXPECT_EQ(together[i]->weight.values(), alone[i]->weight.values());
      EXPECT_TRUE(together[i]->guards_are_intact());
    }
    for (size_t i = 0; i < remainders.size(); i += 2) {
      const auto bytes = static_cast<size_t>(remainders[i].view().num_elements());
      if (bytes > 0) {
        EXPECT_EQ(std::memcmp(remainders[i].view().data, remainders[i + 1].view().data, bytes), 0);
      }
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
