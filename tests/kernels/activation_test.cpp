#include "megatron/kernels/activation.h"

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

constexpr Activation kAll[] = {Activation::kGelu,    Activation::kGeluTanh, Activation::kQuickGelu,  Activation::kSilu,
                               Activation::kSigmoid, Activation::kRelu,     Activation::kSquaredRelu};

double sigmoid64(double x) { return 1 / (1 + std::exp(-x)); }
double value(Activation activation, double x) {
  switch (activation) {
    case Activation::kGelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kQuickGelu:
      return x * sigmoid64(1.702 * x);
    case Activation::kSilu:
      return x * sigmoid64(x);
    case Activation::kSigmoid:
      return sigmoid64(x);
    case Activation::kRelu:
      return std::max(x, 0.0);
    case Activation::kSquaredRelu:
      return std::pow(std::max(x, 0.0), 2);
  }
  return 0;
}
double slope(Activation activation, double x) {
  if (activation == Activation::kRelu) return x > 0 ? 1 : 0;
  const double h = 1e-6;
  return (value(activation, x + h) - value(activation, x - h)) / (2 * h);
}
/// Bound of the error of a value or slope at normal numbers: 2.5 eps of the curve, some roundings, |x| up to 5.
double curve_tolerance(DType dtype) { return tolerance(compute_dtype(dtype), 1, 5); }

TEST(Activation, MatchesTheFormulasInAllTypes) {
  const Shape shape{3, 2, 1030};
  const int64_t n = shape.num_elements(), f = shape[-1];
  for (DType dtype : kFloatingTypes)
    for (Activation activation : kAll)
      for (bool has_bias : {false, true}) {
        GuardedTensor x(dtype, shape, random_values(n, 1), 3), bias(dtype, {f}, random_values(f, 2));
        GuardedTensor dy(dtype, shape, random_values(n, 3)), y(dtype, shape, {}, 1), dx(dtype, shape);
        GuardedTensor dbias(DType::kFloat64 == dtype ? dtype : DType::kFloat32, {f}, Values(f, 1));
        auto workspace = testing::workspace_of(activation_backward_workspace_bytes(6, f, dtype));
        const ConstView b = has_bias ? bias.view() : View{};
        activation_forward(kTwoThreads, {.x = x.view(), .bias = b, .y = y.view(), .activation = activation});
        activation_backward(kTwoThreads, {.x = x.view(),
                                          .bias = b,
                                          .dy = dy.view(),
                                          .dx = dx.view(),
                                          .dbias = dbias.view(),
                                          .accumulate = true,
                                          .workspace = workspace.view(),
                                          .activation = activation});
        Values expected_y, expected_dx, expected_dbias(f, 1);
        for (int64_t i = 0; i < n; ++i) {
          const double z = x[i] + (has_bias ? bias[i % f] : 0);
          expected_y.push_back(value(activation, z));
          expected_dx.push_back(dy[i] * slope(activation, z));
          expected_dbias[i % f] += expected_dx.back();
        }
        // The reference's slope is a difference: its own error is about 1e-9.
        const double slope_error = curve_tolerance(dtype) * 4 + 1e-8;
        const double y_size = activation == Activation::kSquaredRelu ? 8 : 1;
        EXPECT_LE(largest_error(y, expected_y, y_size * curve_tolerance(dtype), epsilon(dtype)), 1)
            << name_of(dtype) << " activation " << static_cast<int>(activation);
        EXPECT_LE(largest_error(dx, expected_dx, slope_error, epsilon(dtype)), 1)
            << name_of(dtype) << " activation " << static_cast<int>(activation);
        EXPECT_LE(largest_error(dbias, expected_dbias, 6 * slope_error, 0), 1);
        EXPECT_TRUE(y.guards_are_intact() && dx.guards_are_intact() && dbias.guards_are_intact() &&
                    workspace.guards_are_intact());
      }
}

TEST(Activation, GradientsMatchFiniteDifferences) {
  for (Activation activation : kAll) {
    GuardedTensor x(DType::kFloat64, {3, 5}, random_values(15, 4)), bias(DType::kFloat64, {5}, random_values(5, 5));
    GuardedTensor dy(DType::kFloat64, {3, 5}, random_values(15, 6)), y(DType::kFloat64, {3, 5});
    GuardedTensor dx(DType::kFloat64, {3, 5}), dbias(DType::kFloat64, {5});
    auto workspace = testing::workspace_of(activation_backward_workspace_bytes(3, 5, DType::kFloat64));
    const auto loss = [&] {
      activation_forward(kOneThread, {.x = x.view(), .bias = bias.view(), .y = y.view(), .activation = activation});
      return testing::dot(y, dy);
    };
    activation_backward(kOneThread, {.x = x.view(),
                                     .bias = bias.view(),
                                     .dy = dy.view(),
                                     .dx = dx.view(),
                                     .dbias = dbias.view(),
                                     .workspace = workspace.view(),
                                     .activation = activation});
    EXPECT_LE(testing::gradient_error(x, dx, loss), testing::kGradientTolerance);
    EXPECT_LE(testing::gradient_error(bias, dbias, loss), testing::kGradientTolerance);
  }
}

TEST(Activation, LetsNanThroughAndSaturates) {
  const double nan = std::nan("");
  for (Activation activation : kAll) {
    GuardedTensor x(DType::kFloat32, {3}, {nan, 60, -60}), y(DType::kFloat32, {3});
    activation_forward(kOneThread, {.x = x.view(), .y = y.view(), .activation = activation});
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_NEAR(y[1], value(activation, 60), 1e-3);
    EXPECT_NEAR(y[2], 0, 1e-20);
  }
}

/// A gated case with gate and up as halves of [.., 2f], as fc1 gives them.
struct Gated {
  Gated(DType dtype, const Shape& half, GateOptions gate_options, bool with_bias = true)
      : f(half[-1]), n(half.num_elements()), has_bias(with_bias), options(gate_options) {
    Shape whole = half;
    whole[-1] = 2 * f;
    x = GuardedTensor(dtype, whole, random_values(2 * n, 1, 1.5));
    dx = GuardedTensor(dtype, whole);
    bias = GuardedTensor(dtype, {2 * f}, random_values(2 * f, 2));
    dbias = GuardedTensor(compute_dtype(dtype), {2 * f}, Values(2 * f, 1));
    dy = GuardedTensor(dtype, half, random_values(n, 3));
    y = GuardedTensor(dtype, half);
    workspace = testing::workspace_of(gated_activation_backward_workspace_bytes(n / f, f, dtype));
  }
  View part(GuardedTensor& t, int64_t index) const {
    View view = t.view();
    view.shape[-1] = f;
    view.data = static_cast<char*>(view.data) + index * f * size_of(view.dtype);
    return view;
  }
  View bias_part(int64_t index) { return has_bias ? part(bias, index) : View{}; }
  void forward(const CpuStream& stream, Activation activation) {
    gated_activation_forward(stream,
                             {part(x, 0), part(x, 1), bias_part(0), bias_part(1), y.view(), activation, options});
  }
  void backward(const CpuStream& stream, Activation activation, bool accumulate) {
    gated_activation_backward(stream,
                              {part(x, 0), part(x, 1), bias_part(0), bias_part(1), dy.view(), part(dx, 0), part(dx, 1),
                               part(dbias, 0), part(dbias, 1), accumulate, workspace.view(), activation, options});
  }
  /// Expected y, dx and dbias (added to 1).
  void reference(Activation activation, Values& ys, Values& dxs, Values& dbiases) const {
    ys.resize(n);
    dxs.resize(2 * n);
    dbiases.assign(2 * f, 1);
    const double c = options.clamp;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t gate = i / f * 2 * f + i % f, up = gate + f;
      const double g = x[gate] + (has_bias ? bias[i % f] : 0), u = x[up] + (has_bias ? bias[f + i % f] : 0);
      const double clamped_g = std::min(g, c), factor = std::clamp(u, -c, c) + options.linear_offset;
      ys[i] = value(activation, clamped_g) * factor;
      dxs[gate] = g > c ? 0 : dy[i] * factor * slope(activation, clamped_g);
      dxs[up] = std::abs(u) > c ? 0 : dy[i] * value(activation, clamped_g);
      dbiases[i % f] += dxs[gate];
      dbiases[f + i % f] += dxs[up];
    }
  }
  bool guards_are_intact() const {
    return y.guards_are_intact() && dx.guards_are_intact() && dbias.guards_are_intact() &&
           workspace.guards_are_intact();
  }
  int64_t f, n;
  bool has_bias;
  GateOptions options;
  GuardedTensor x, dx, bias, dbias, dy, y, workspace;
};

TEST(GatedActivation, MatchesTheFormulasInAllTypes) {
  for (DType dtype : kFloatingTypes)
    for (Activation activation : kAll)
      for (const GateOptions& options : {GateOptions{}, GateOptions{.clamp = 1, .linear_offset = 1}}) {
        Gated c(dtype, {2, 3, 1027}, options, activation != Activation::kSilu);
        c.forward(kTwoThreads, activation);
        c.backward(kTwoThreads, activation, true);
        Values y, dx, dbias;
        c.reference(activation, y, dx, dbias);
        const double size = activation == Activation::kSquaredRelu ? 256 : 32;  // products of up to three such values
        const double bound = size * curve_tolerance(dtype) + 1e-7;
        EXPECT_LE(largest_error(c.y, y, bound, epsilon(dtype)), 1) << name_of(dtype);
        EXPECT_LE(largest_error(c.dx, dx, bound, epsilon(dtype)), 1) << name_of(dtype);
        EXPECT_LE(largest_error(c.dbias, dbias, 6 * bound, 0), 1) << name_of(dtype);
        EXPECT_TRUE(c.guards_are_intact());
      }
}

TEST(GatedActivation, GradientsMatchFiniteDifferences) {
  for (Activation activation : kAll) {
    Gated c(DType::kFloat64, {3, 4}, {.clamp = 2, .linear_offset = 1});
    const auto loss = [&] {
      c.forward(kOneThread, activation);
      return testing::dot(c.y, c.dy);
    };
    c.backward(kOneThread, activation, false);
    EXPECT_LE(testing::gradient_error(c.x, c.dx, loss), testing::kGradientTolerance);
    EXPECT_LE(testing::gradient_error(c.bias, c.dbias, loss), testing::kGradientTolerance);
  }
}

TEST(GatedActivation, WorksInPlaceAndOnAnyNumberOfThreads) {
  for (DType dtype : kFloatingTypes) {
    Gated c(dtype, {300, 301}, {}), in_place(dtype, {300, 301}, {});
    c.forward(kOneThread, Activation::kSilu);
    c.backward(kOneThread, Activation::kSilu, false);
    gated_activation_backward(kTwoThreads, {.gate = in_place.part(in_place.x, 0),
                                            .up = in_place.part(in_place.x, 1),
                                            .gate_bias = in_place.bias_part(0),
                                            .up_bias = in_place.bias_part(1),
                                            .dy = in_place.dy.view(),
                                            .dgate = in_place.part(in_place.x, 0),
                                            .dup = in_place.part(in_place.x, 1),
                                            .dgate_bias = in_place.part(in_place.dbias, 0),
                                            .dup_bias = in_place.part(in_place.dbias, 1),
                                            .workspace = in_place.workspace.view()});
    EXPECT_EQ(in_place.x.values(), c.dx.values());
    EXPECT_EQ(in_place.dbias.values(), c.dbias.values());
  }
}

TEST(GatedActivation, BoundedRowsBeyondTheCountAreLeft) {
  const int32_t count = 2;
  Gated c(DType::kFloat32, {4, 8}, {}), whole(DType::kFloat32, {4, 8}, {});
  whole.forward(kOneThread, Activation::kSilu);
  c.y.set(Values(32, 9));
  gated_activation_forward(kOneThread,
                           {c.part(c.x, 0), c.part(c.x, 1), c.bias_part(0), c.bias_part(1), c.y.bounded(&count)});
  for (int64_t i = 0; i < 32; ++i) EXPECT_EQ(c.y[i], i < 16 ? whole.y[i] : 9);
}

}  // namespace
}  // namespace megatron::kernels
