// Activations, dropout, copies, sums and sums over rows on CUDA against the CPU.
#include "megatron/kernels/activation.h"
#include "megatron/kernels/column_sum.h"
#include "megatron/kernels/dropout.h"
#include "megatron/kernels/elementwise.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::kPlacements;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::TwinValues;
using testing::within;

class CudaPointwise : public testing::CudaTest {};

const Shape kPointwiseShapes[] = {{1, 1}, {5, 7}, {2, 3, 64}, {70, 129}, {9, 2056}};

template <class F>
void for_all_pointwise_cases(F&& f) {
  for (DType dtype : kCudaTypes)
    for (const Shape& shape : kPointwiseShapes)
      for (Placement placement : kPlacements) {
        SCOPED_TRACE(fmt::format("{} {} gap {} shift {}", dtype, shape, placement.gap, placement.shift));
        f(dtype, shape, placement);
      }
}

TEST_F(CudaPointwise, ActivationsAgreeWithTheCpu) {
  for_all_pointwise_cases([&](DType dtype, const Shape& shape, Placement p) {
    const int64_t n = shape.num_elements(), f = shape[-1], rows = n / f;
    Twin x(dtype, shape, random_values(n, 1, 2), p), bias(dtype, {f}, random_values(f, 2)), y(dtype, shape, {}, p);
    Twin dy(dtype, shape, random_values(n, 3), p), dx(dtype, shape, {}, p), dbias(DType::kFloat32, {f});
    Twin workspace(DType::kUInt8, {activation_backward_workspace_bytes(rows, f, dtype)});
    for (Activation activation : {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu,
                                  Activation::kSigmoid, Activation::kRelu, Activation::kSquaredRelu}) {
      SCOPED_TRACE(static_cast<int>(activation));
      compare({within(y, 1, 8)}, [&](const auto& stream, auto on) {
        activation_forward(stream, {.x = on(x), .bias = on(bias), .y = on(y), .activation = activation});
      });
      compare({within(dx, 1, 16), within(dbias, rows, 16)}, [&](const auto& stream, auto on) {
        activation_backward(stream, {.x = on(x),
                                     .bias = on(bias),
                                     .dy = on(dy),
                                     .dx = on(dx),
                                     .dbias = on(dbias),
                                     .workspace = on(workspace),
                                     .activation = activation});
      });
    }
  });
}

TEST_F(CudaPointwise, GatedActivationsAgreeWithTheCpu) {
  for_all_pointwise_cases([&](DType dtype, const Shape& shape, Placement p) {
    const int64_t n = shape.num_elements(), f = shape[-1], rows = n / f;
    Twin gate(dtype, shape, random_values(n, 1, 2), p), up(dtype, shape, random_values(n, 2, 2), p);
    Twin gate_bias(dtype, {f}, random_values(f, 3)), up_bias(dtype, {f}, random_values(f, 4));
    Twin y(dtype, shape, {}, p), dy(dtype, shape, random_values(n, 5), p), dgate(dtype, shape, {}, p);
    Twin dup(dtype, shape, {}, p), dgate_bias(dtype, {f}, random_values(f, 6)),
        dup_bias(dtype, {f}, random_values(f, 7));
    Twin workspace(DType::kUInt8, {gated_activation_backward_workspace_bytes(rows, f, dtype)});
    for (bool with_bias : {false, true}) {
      const GateOptions options = with_bias ? GateOptions{.clamp = 1.5, .linear_offset = 1} : GateOptions{};
      const Activation activation = with_bias ? Activation::kQuickGelu : Activation::kSilu;
      compare({within(y, 1, 32)}, [&](const auto& stream, auto on) {
        gated_activation_forward(stream, {.gate = on(gate),
                                          .up = on(up),
                                          .gate_bias = with_bias ? on(gate_bias) : View{},
                                          .up_bias = with_bias ? on(up_bias) : View{},
                                          .y = on(y),
                                          .activation = activation,
                                          .options = options});
      });
      std::vector<testing::Result> results = {within(dgate, 1, 32), within(dup, 1, 32)};
      if (with_bias) results.push_back(within(dgate_bias, rows, 32));
      if (with_bias) results.push_back(within(dup_bias, rows, 32));
      compare(results, [&](const auto& stream, auto on) {
        gated_activation_backward(stream, {.gate = on(gate),
                                           .up = on(up),
                                           .gate_bias = with_bias ? on(gate_bias) : View{},
                                           .up_bias = with_bias ? on(up_bias) : View{},
                                           .dy = on(dy),
                                           .dgate = on(dgate),
                                           .dup = on(dup),
                                           .dgate_bias = with_bias ? on(dgate_bias) : View{},
                                           .dup_bias = with_bias ? on(dup_bias) : View{},
                                           .accumulate = true,
                                           .workspace = on(workspace),
                                           .activation = activation,
                                           .options = options});
      });
    }
  });
}

TEST_F(CudaPointwise, DropoutDrawsTheMaskOfTheCpu) {
  TwinValues<StepState> state({StepState{.step = 5}});
  for_all_pointwise_cases([&](DType dtype, const Shape& shape, Placement p) {
    const int64_t n = shape.num_elements(), h = shape[-1], rows = n / h;
    Twin x(dtype, shape, random_values(n, 1), p), bias(dtype, {h}, random_values(h, 2));
    Twin residual(dtype, shape, random_values(n, 3), p), y(dtype, shape, {}, p), dx(dtype, shape, {}, p);
    Twin dbias(DType::kFloat32, {h}, random_values(h, 4));
    Twin workspace(DType::kUInt8, {bias_dropout_add_backward_workspace_bytes(rows, h, dtype)});
    for (int64_t first_feature : {0, 8, 5, 6, 7}) {
      const auto mask = [&](auto on) {
        return DropoutMask{
            .rate = 0.3,
            .key = {99},
            .state = on(state),
            .rows = {.first_sample = 2, .sequence_length = int64_t{1} << 33, .first_position = 3, .b = 3},
            .first_feature = first_feature};
      };
      // Without bias and residual the result is 0 or x times one factor: exact.
      compare({{&y}}, [&](const auto& stream, auto on) {
        bias_dropout_add_forward(stream, {.x = on(x), .y = on(y), .dropout = mask(on)});
      });
      compare({within(y, 1, 8)}, [&](const auto& stream, auto on) {
        bias_dropout_add_forward(
            stream, {.x = on(x), .bias = on(bias), .residual = on(residual), .y = on(y), .dropout = mask(on)});
      });
      compare({{&dx}, within(dbias, rows, 4)}, [&](const auto& stream, auto on) {
        bias_dropout_add_backward(stream, {.dy = on(x),
                                           .dx = on(dx),
                                           .dbias = on(dbias),
                                           .accumulate = true,
                                           .workspace = on(workspace),
                                           .dropout = mask(on)});
      });
      dbias.reset();
    }
  });
}

TEST_F(CudaPointwise, MixedDtypesAddAndConvert) {
  for (DType from : kCudaTypes)
    for (DType to : kCudaTypes)
      for (Placement p : kPlacements) {
        SCOPED_TRACE(fmt::format("{} to {} gap {} shift {}", from, to, p.gap, p.shift));
        const Shape shape{3, 11, 40};
        const int64_t n = shape.num_elements();
        Twin a(from, shape, random_values(n, 1), p), b(to, shape, random_values(n, 2), {}), y(to, shape, {}, p);
        Twin sum(to, shape, random_values(n, 3), {});
        TwinValues<double> factor({0.75});
        compare({{&y}}, [&](const auto& stream, auto on) { copy(stream, {.x = on(a), .y = on(y)}); });
        compare({within(y, 1, 4)},
                [&](const auto& stream, auto on) { add(stream, {.a = on(a), .b = on(b), .y = on(y)}); });
        compare({within(y)}, [&](const auto& stream, auto on) {
          scale(stream, {.x = on(a), .y = on(y), .factor = 3, .device_factor = on(factor)});
        });
        compare({within(sum, 1, 4)},
                [&](const auto& stream, auto on) { accumulate(stream, {.x = on(a), .y = on(sum), .factor = -2}); });
      }
}

TEST_F(CudaPointwise, SumsOfLossesAreMadeInFp64) {
  for (int64_t n : {1, 37}) {
    const auto within_fp64 = [](Twin& twin, double magnitude) {
      const double bound = testing::tolerance(DType::kFloat64, 2, magnitude);
      return testing::Result{&twin, bound, bound};
    };
    Twin x(DType::kFloat64, {n}, random_values(n, 1)), sum(DType::kFloat64, {n}, random_values(n, 2));
    Twin y(DType::kFloat64, {n});
    TwinValues<double> factor({0.75});
    compare({within_fp64(sum, 4)},
            [&](const auto& stream, auto on) { accumulate(stream, {.x = on(x), .y = on(sum), .factor = 1.0 / 3}); });
    compare({within_fp64(y, 4)}, [&](const auto& stream, auto on) {
      scale(stream, {.x = on(x), .y = on(y), .factor = 3, .device_factor = on(factor)});
    });
  }
  Twin x(DType::kFloat64, {3}), y(DType::kFloat32, {3});
  EXPECT_THROW(copy(stream_, {.x = y.gpu(), .y = x.gpu()}), NotSupported);
}

TEST_F(CudaPointwise, CopiesAndFillsTakeAnyStridesAndIntegers) {
  for (DType dtype : {DType::kUInt8, DType::kInt32, DType::kInt64, DType::kBFloat16, DType::kFloat64})
    for (Placement p : kPlacements) {
      SCOPED_TRACE(fmt::format("{} gap {} shift {}", dtype, p.gap, p.shift));
      const Shape shape{4, 6, 16};
      std::vector<double> values(static_cast<size_t>(shape.num_elements()));
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 100);
      Twin x(dtype, shape, values, p), y(dtype, shape, {}, p), transposed(dtype, {16, 6, 4}, {}, p);
      compare({{&y}}, [&](const auto& stream, auto on) { copy(stream, {.x = on(x), .y = on(y)}); });
      compare({{&transposed}}, [&](const auto& stream, auto on) {
        View view = on(x);
        view.shape = {16, 6, 4};
        std::swap(view.strides[0], view.strides[2]);
        copy(stream, {.x = view, .y = on(transposed)});
      });
      compare({{&y}}, [&](const auto& stream, auto on) { fill(stream, {.y = on(y), .value = 3}); });
      compare({{&y}}, [&](const auto& stream, auto on) { fill(stream, {.y = on(y)}); });
    }
}

TEST_F(CudaPointwise, ColumnSumsAgreeWithTheCpuAndRespectTheCount) {
  TwinValues<int32_t> count({37});
  for (DType dtype : kCudaTypes)
    for (Placement p : kPlacements)
      for (int64_t f : {1, 33, 264, 1000}) {
        SCOPED_TRACE(fmt::format("{} f {} gap {} shift {}", dtype, f, p.gap, p.shift));
        const int64_t rows = 700;
        Twin x(dtype, {rows, f}, random_values(rows * f, 1), p), out(DType::kFloat32, {f}, random_values(f, 2));
        Twin workspace(DType::kUInt8, {column_sum_workspace_bytes(rows, f, dtype)});
        for (bool bounded : {false, true})
          compare({within(out, rows, 4)}, [&](const auto& stream, auto on) {
            View view = on(x);
            view.count = bounded ? on(count) : nullptr;
            column_sum(stream, {.x = view, .out = on(out), .accumulate = !bounded, .workspace = on(workspace)});
          });
      }
}

}  // namespace
}  // namespace megatron::kernels
