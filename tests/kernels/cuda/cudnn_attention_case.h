// cuDNN's attention beside the formulas in double, for its tests.
#pragma once

#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/kernels/cuda/attention/cudnn_attention.h"
#include "megatron/kernels/cuda/attention/cudnn_attention_plan.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {

using testing::Twin;
using testing::TwinValues;

/// Zeros on the device, without values on the host.
class Zeros {
 public:
  Zeros(DType dtype, const Shape& shape)
      : bytes_(shape.num_elements() * size_of(dtype), 0),
        view_{bytes_.data(), dtype, shape, shape.contiguous_strides()} {
    testing::check_cuda(cudaMemset(view_.data, 0, static_cast<size_t>(shape.num_elements() * size_of(dtype))));
  }
  operator View() const { return view_; }
  operator ConstView() const { return view_; }

 private:
  testing::DeviceBytes bytes_;
  View view_;
};

/// The tensors of an AttentionCase on the device.
struct DeviceCase {
  DeviceCase(const AttentionCase& test, DType dtype, SpanForm form, int64_t gap)
      : test(test), form(form), spans(test.spans), state({test.state}) {
    const AttentionSizes& z = test.sizes;
    const testing::Placement placement{.gap = gap};
    const auto random = [&](const Shape& shape, uint64_t seed) {
      return Twin(dtype, shape, testing::random_values(shape.num_elements(), seed), placement);
    };
    const Shape q_shape{z.s, z.b, z.n, z.d}, k_shape{z.s_k, z.b, z.g, z.d}, v_shape{z.s_k, z.b, z.g, z.dv};
    const Shape o_shape{z.s, z.b, z.n, z.dv};
    q = random(q_shape, 1), k = random(k_shape, 2), v = random(v_shape, 3), grad_o = random(o_shape, 4);
    o = Twin(dtype, o_shape, {}, placement), lse = Twin(DType::kFloat32, {z.n, z.b, z.s});
    grad_q = Twin(dtype, q_shape, {}, placement), grad_k = Twin(dtype, k_shape, {}, placement);
    grad_v = Twin(dtype, v_shape, {}, placement);
  }
  SequenceLayoutView layout() {
    SequenceLayoutView view = test.layout();
    view.spans = spans.gpu();
    view.form = form;
    return view;
  }
  AttentionForwardArgs forward_args() {
    AttentionForwardArgs args{.q = q.gpu(),
                              .k = k.gpu(),
                              .v = v.gpu(),
                              .sink = {},
                              .layout = layout(),
                              .options = test.options,
                              .o = o.gpu(),
                              .lse = lse.gpu()};
    args.options.state = state.gpu();
    return args;
  }
  AttentionBackwardArgs backward_args() {
    AttentionBackwardArgs args{.q = q.gpu(),
                               .k = k.gpu(),
                               .v = v.gpu(),
                               .sink = {},
                               .o = o.gpu(),
                               .lse = lse.gpu(),
                               .grad_o = grad_o.gpu(),
                               .layout = layout(),
                               .options = test.options,
                               .grad_q = grad_q.gpu(),
                               .grad_k = grad_k.gpu(),
                               .grad_v = grad_v.gpu()};
    args.options.state = state.gpu();
    return args;
  }

  const AttentionCase& test;
  SpanForm form;
  TwinValues<SequenceSpan> spans;
  TwinValues<StepState> state;
  Twin q, k, v, grad_o, o, lse, grad_q, grad_k, grad_v;
};

class CudnnAttention : public testing::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !cudnn_state().is_usable) GTEST_SKIP() << cudnn_state().text;
  }

  void forward(DeviceCase& device) {
    AttentionForwardArgs args = device.forward_args();
    ASSERT_EQ(cudnn_refusal(args), "");
    const Zeros workspace(DType::kUInt8, {cudnn_workspace_bytes(args)});
    args.workspace = workspace;
    ASSERT_TRUE(cudnn_attention_forward(stream_, args)) << "no plan fits in " << cudnn_workspace_bytes(args);
    testing::check_cuda(cudaDeviceSynchronize());
  }
  void backward(DeviceCase& device) {
    AttentionBackwardArgs args = device.backward_args();
    ASSERT_EQ(cudnn_refusal(args), "");
    const Zeros workspace(DType::kUInt8, {cudnn_workspace_bytes(args)});
    args.workspace = workspace;
    ASSERT_TRUE(cudnn_attention_backward(stream_, args)) << "no plan fits in " << cudnn_workspace_bytes(args);
    testing::check_cuda(cudaDeviceSynchronize());
  }

  /// Scores and probabilities are rounded to the dtype before a matmul: each value carries a few errors of eps times
  /// its terms, which have signs of their own. So the root mean square of the errors is bounded by that of the values,
  /// and the largest error by the largest value.
  static void expect_close(const Twin& twin, const std::vector<double>& expected, DType dtype, const char* name) {
    const testing::GuardedTensor actual = twin.from_gpu();
    double errors = 0, values = 0, largest_error = 0, largest = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double error = std::abs(actual[static_cast<int64_t>(i)] - expected[i]);
      ASSERT_FALSE(std::isnan(error)) << name << " " << i;
      errors += error * error;
      values += expected[i] * expected[i];
      largest_error = std::max(largest_error, error);
      largest = std::max(largest, std::abs(expected[i]));
    }
    EXPECT_LE(std::sqrt(errors), 2 * epsilon(dtype) * std::sqrt(values)) << name;
    EXPECT_LE(largest_error, testing::tolerance(dtype, 1, largest)) << name;
  }
  static void expect_lse(const Twin& twin, const std::vector<double>& expected, int64_t length) {
    const testing::GuardedTensor actual = twin.from_gpu();
    for (size_t i = 0; i < expected.size(); ++i) {
      const double value = actual[static_cast<int64_t>(i)];
      if (std::isinf(expected[i]))
        ASSERT_EQ(value, expected[i]) << "lse " << i;
      else
        ASSERT_NEAR(value, expected[i], testing::tolerance(DType::kFloat32, length, 4)) << "lse " << i;
    }
  }

  void expect_agreement(DType dtype, const AttentionSizes& z, const std::vector<SequenceSpan>& spans, SpanForm form,
                        AttentionOptions options, int64_t gap = 0) {
    SCOPED_TRACE(fmt::format("{} s {} b {} n {} g {} d {} dv {} causal {} window {} {} gap {} deterministic {}", dtype,
                             z.s, z.b, z.n, z.g, z.d, z.dv, options.is_causal, options.window_left,
                             options.window_right, gap, options.is_deterministic));
    AttentionCase test(dtype, z);
    test.spans = spans;
    options.scale = 1 / std::sqrt(static_cast<double>(z.d));
    test.options = options;
    DeviceCase device(test, dtype, form, gap);
    const AttentionReference reference(test);
    forward(device);
    if (HasFatalFailure()) return;
    expect_close(device.o, reference.o, dtype, "o");
    expect_lse(device.lse, reference.lse, z.s + z.d);
    backward(device);
    if (HasFatalFailure()) return;
    expect_close(device.grad_q, reference.grad_q, dtype, "grad_q");
    expect_close(device.grad_k, reference.grad_k, dtype, "grad_k");
    expect_close(device.grad_v, reference.grad_v, dtype, "grad_v");
  }
  void expect_uniform_agreement(DType dtype, const AttentionSizes& z, const AttentionOptions& options,
                                int64_t gap = 0) {
    expect_agreement(dtype, z, uniform_spans(z), SpanForm::kUniform, options, gap);
  }
};

}  // namespace megatron::kernels
