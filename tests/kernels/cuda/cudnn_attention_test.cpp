// cuDNN's attention against the formulas in double. Skipped where there is no GPU or no cuDNN.
#include "megatron/kernels/cuda/attention/tiled_attention.h"
#include "megatron/kernels/cuda/this_gpu.h"
#include "tests/kernels/cuda/cudnn_attention_case.h"

namespace megatron::kernels {
namespace {

TEST_F(CudnnAttention, AgreesWithTheFormulasForSharedKeysAndOddLengths) {
  const AttentionOptions plain{.is_deterministic = false}, deterministic{.is_deterministic = true};
  expect_uniform_agreement(DType::kBFloat16, {256, 256, 2, 4, 2, 128, 128}, plain);
  expect_uniform_agreement(DType::kFloat16, {131, 131, 1, 3, 1, 64, 64}, plain);
  expect_uniform_agreement(DType::kBFloat16, {17, 17, 2, 2, 2, 72, 40}, plain);
  expect_uniform_agreement(DType::kBFloat16, {200, 200, 1, 2, 1, 256, 256}, plain);
  expect_uniform_agreement(DType::kBFloat16, {131, 131, 2, 4, 2, 128, 128}, deterministic);
  expect_uniform_agreement(DType::kFloat16, {256, 256, 1, 3, 1, 64, 64}, deterministic);
}

TEST_F(CudnnAttention, AgreesWithTheFormulasWithoutMaskAndInWindows) {
  const AttentionSizes z{300, 300, 2, 4, 2, 64, 64};
  expect_uniform_agreement(DType::kBFloat16, z, {.is_causal = false});
  for (int64_t left : {1, 130}) expect_uniform_agreement(DType::kBFloat16, z, {.window_left = left});
  expect_uniform_agreement(DType::kBFloat16, z, {.is_causal = false, .window_left = 20, .window_right = 40});
}

TEST_F(CudnnAttention, ReadsAndWritesStridedHeads) {
  expect_uniform_agreement(DType::kBFloat16, {130, 130, 2, 4, 2, 128, 64}, {}, 8);
}

TEST_F(CudnnAttention, PackedSequencesAreSeparateSequences) {
  const std::vector<SequenceSpan> one_column = {
      {.batch = 0, .query_begin = 0, .query_length = 3, .key_begin = 0, .key_length = 3},
      {.batch = 0, .query_begin = 3, .query_length = 170, .key_begin = 3, .key_length = 170},
      {.batch = 0, .query_begin = 190, .query_length = 64, .key_begin = 190, .key_length = 64}};
  std::vector<SequenceSpan> two_columns = one_column;
  two_columns.push_back({.batch = 1, .query_begin = 10, .query_length = 1, .key_begin = 10, .key_length = 1});
  two_columns.push_back({.batch = 1, .query_begin = 11, .query_length = 219, .key_begin = 11, .key_length = 219});
  const auto expect_packed = [&](DType dtype, const AttentionSizes& z, const AttentionOptions& options, int64_t gap) {
    expect_agreement(dtype, z, z.b == 1 ? one_column : two_columns, SpanForm::kPacked, options, gap);
  };
  const AttentionOptions plain{.is_deterministic = false}, deterministic{.is_deterministic = true};
  expect_packed(DType::kBFloat16, {260, 260, 1, 4, 2, 64, 64}, plain, 0);
  expect_packed(DType::kBFloat16, {260, 260, 2, 4, 4, 128, 128}, plain, 0);
  expect_packed(DType::kFloat16, {260, 260, 2, 4, 2, 64, 64}, plain, 8);
  expect_packed(DType::kBFloat16, {260, 260, 2, 4, 2, 128, 128}, deterministic, 0);
  expect_packed(DType::kBFloat16, {260, 260, 2, 4, 2, 64, 64}, {.window_left = 30, .is_deterministic = false}, 0);
}

TEST_F(CudnnAttention, DeterministicGradientsAreEqualInTwoRunsAlsoInPieces) {
  // 10 heads of 7400 keys store 1.02 GiB of gradients of scores.
  for (const AttentionSizes& z : {AttentionSizes{512, 512, 2, 8, 2, 64, 64}, {7400, 7400, 1, 10, 2, 16, 16}}) {
    AttentionCase test(DType::kBFloat16, z);
    test.options = {.scale = 0.125, .is_deterministic = true};
    DeviceCase device(test, DType::kBFloat16, SpanForm::kUniform, 0);
    EXPECT_EQ(cudnn_piece(device.backward_args()).num_groups < z.g, z.n == 10);
    forward(device);
    backward(device);
    const std::vector<char> first[] = {device.grad_q.bytes(), device.grad_k.bytes(), device.grad_v.bytes()};
    for (Twin* gradient : {&device.grad_q, &device.grad_k, &device.grad_v}) gradient->reset_gpu();
    backward(device);
    EXPECT_EQ(first[0], device.grad_q.bytes());
    EXPECT_EQ(first[1], device.grad_k.bytes());
    EXPECT_EQ(first[2], device.grad_v.bytes());
  }
}

TEST_F(CudnnAttention, BuiltInKernelsRunTheBackwardOfItsForward) {
  const AttentionSizes z{190, 190, 1, 4, 2, 64, 64};
  AttentionCase test(DType::kBFloat16, z);
  test.options = {.scale = 0.125};
  DeviceCase device(test, DType::kBFloat16, SpanForm::kUniform, 0);
  const AttentionReference reference(test);
  forward(device);
  AttentionBackwardArgs args = device.backward_args();
  Twin workspace(DType::kUInt8, {tiled_attention_workspace_bytes(args)});
  args.workspace = workspace.gpu();
  tiled_attention_backward(stream_, args, block_shared_bytes());
  expect_close(device.grad_q, reference.grad_q, DType::kBFloat16, "grad_q");
  expect_close(device.grad_k, reference.grad_k, DType::kBFloat16, "grad_k");
  expect_close(device.grad_v, reference.grad_v, DType::kBFloat16, "grad_v");
}

TEST_F(CudnnAttention, CallsOfBuiltInKernelsAreReportedWithTheReason) {
  AttentionCase test(DType::kBFloat16, {64, 64, 1, 2, 2, 64, 64});
  DeviceCase device(test, DType::kBFloat16, SpanForm::kUniform, 0);
  AttentionForwardArgs args = device.forward_args();
  const Zeros workspace(DType::kUInt8, {cudnn_workspace_bytes(args)});
  args.workspace = workspace;
  attention_forward(stream_, args);
  EXPECT_EQ(own_attention_text(stream_), "");
  args.options.dropout = 0.1;
  attention_forward(stream_, args);
  EXPECT_EQ(own_attention_text(stream_),
            fmt::format("attention: 1 of 2 calls ran on built-in kernels instead of cuDNN: {}", cudnn_refusal(args)));
  testing::check_cuda(cudaDeviceSynchronize());
}

TEST_F(CudnnAttention, DropsTheSameProbabilitiesInBothDirections) {
  constexpr int64_t s = 64;  // = d, so that v may be the identity, which shows what is left of the probabilities
  constexpr int64_t b = 2, n = 4, g = 2;
  constexpr double kRate = 0.25;
  for (const bool is_deterministic : {false, true}) {
    AttentionCase test(DType::kBFloat16, {s, s, b, n, g, s, s});
    test.options.dropout = kRate;
    test.options.is_dropout_of_cudnn = true;
    test.options.is_deterministic = is_deterministic;
    DeviceCase device(test, DType::kBFloat16, SpanForm::kUniform, 0);
    std::vector<double> identity(s * b * g * s, 0);
    for (int64_t i = 0; i < s; ++i)
      for (int64_t column_of_group = 0; column_of_group < b * g; ++column_of_group)
        identity[static_cast<size_t>((i * b * g + column_of_group) * s + i)] = 1;
    device.v = Twin(DType::kBFloat16, {s, b, g, s}, identity);
    forward(device);
    backward(device);

    const testing::GuardedTensor q = device.q.from_gpu(), k = device.k.from_gpu(), grad_o = device.grad_o.from_gpu();
    const testing::GuardedTensor kept = device.o.from_gpu();
    std::vector<double> o(s * b * n * s, 0), grad_q = o, grad_k(s * b * g * s, 0), grad_v = grad_k;
    int64_t num_dropped = 0;
    for (int64_t head = 0; head < b * n; ++head) {
      const int64_t group = head / n * g + head % n / (n / g);
      const auto of_query = [&](int64_t row, int64_t e) { return (row * b * n + head) * s + e; };
      const auto of_key = [&](int64_t row, int64_t e) { return (row * b * g + group) * s + e; };
      for (int64_t i = 0; i < s; ++i) {
        std::vector<double> p(s, 0), factor(s, 0);
        double sum = 0, dot = 0;
        for (int64_t j = 0; j <= i; ++j) {
          for (int64_t e = 0; e < s; ++e) p[j] += test.options.scale * q[of_query(i, e)] * k[of_key(j, e)];
          sum += p[j] = std::exp(p[j]);
        }
        for (int64_t j = 0; j <= i; ++j) {
          const int64_t at = of_query(i, j);
          p[j] /= sum;
          factor[j] = kept[at] == 0 ? 0 : 1 / (1 - kRate);
          num_dropped += kept[at] == 0;
          o[at] = p[j] * factor[j];
          dot += o[at] * grad_o[at];
        }
        for (int64_t j = 0; j <= i; ++j) {
          const int64_t at = of_query(i, j);
          const double grad_score = test.options.scale * p[j] * (factor[j] * grad_o[at] - dot);
          for (int64_t e = 0; e < s; ++e) {
            grad_q[of_query(i, e)] += grad_score * k[of_key(j, e)];
            grad_k[of_key(j, e)] += grad_score * q[of_query(i, e)];
            grad_v[of_key(j, e)] += o[at] * grad_o[of_query(i, e)];
          }
        }
      }
    }
    expect_close(device.o, o, DType::kBFloat16, "o");
    expect_close(device.grad_q, grad_q, DType::kBFloat16, "grad_q");
    expect_close(device.grad_k, grad_k, DType::kBFloat16, "grad_k");
    expect_close(device.grad_v, grad_v, DType::kBFloat16, "grad_v");
    const double num = b * n * s * (s + 1) / 2.0;
    EXPECT_NEAR(static_cast<double>(num_dropped), kRate * num, 5 * std::sqrt(kRate * (1 - kRate) * num));
  }
}

TEST_F(CudnnAttention, DropsOthersInAnotherStepAndOfOtherHeadsAndRows) {
  const auto output = [&](int64_t step, int64_t first_head, int64_t first_sample) {
    AttentionCase test(DType::kBFloat16, {64, 64, 1, 2, 2, 64, 64});
    test.state.step = step;
    test.options.dropout = 0.25;
    test.options.is_dropout_of_cudnn = true;
    test.options.first_head = first_head;
    DeviceCase device(test, DType::kBFloat16, SpanForm::kUniform, 0);
    AttentionForwardArgs args = device.forward_args();
    args.layout.rows = {.first_sample = first_sample, .sequence_length = 64};
    const Zeros workspace(DType::kUInt8, {cudnn_workspace_bytes(args)});
    args.workspace = workspace;
    attention_forward(stream_, args);
    testing::check_cuda(cudaDeviceSynchronize());
    return device.o.bytes();
  };
  const std::vector<char> first = output(3, 0, 5);
  EXPECT_EQ(output(3, 0, 5), first);
  EXPECT_NE(output(4, 0, 5), first);
  EXPECT_NE(output(3, 2, 5), first);
  EXPECT_NE(output(3, 0, 6), first);
}

TEST_F(CudnnAttention, RejectsItsDropoutWhereItDoesNotRun) {
  AttentionCase test(DType::kBFloat16, {64, 64, 1, 2, 2, 64, 64});
  test.options.dropout = 0.25;
  test.options.is_dropout_of_cudnn = true;
  test.options.softmax = AttentionSoftmax::kOffByOne;
  DeviceCase device(test, DType::kBFloat16, SpanForm::kUniform, 0);
  EXPECT_THROW(attention_forward(stream_, device.forward_args()), NotSupported);
  EXPECT_THROW(attention_backward(stream_, device.backward_args()), NotSupported);
}

TEST_F(CudnnAttention, PlansOfTrainingShapesFitInTheBound) {
  constexpr DType kType = DType::kBFloat16;
  for (const AttentionSizes& z : {AttentionSizes{1024, 1024, 16, 12, 12, 64, 64},
                                  {4096, 4096, 1, 32, 8, 128, 128},
                                  {5000, 5000, 1, 8, 1, 192, 128}}) {
    const Shape q_shape{z.s, z.b, z.n, z.d}, k_shape{z.s, z.b, z.g, z.d}, v_shape{z.s, z.b, z.g, z.dv};
    const Shape o_shape{z.s, z.b, z.n, z.dv};
    const Zeros q(kType, q_shape), k(kType, k_shape), v(kType, v_shape), o(kType, o_shape), grad_o(kType, o_shape);
    const Zeros grad_q(kType, q_shape), grad_k(kType, k_shape), grad_v(kType, v_shape);
    const Zeros lse(DType::kFloat32, {z.n, z.b, z.s});
    TwinValues<SequenceSpan> spans(uniform_spans(z));
    for (SpanForm form : {SpanForm::kUniform, SpanForm::kPacked})
      for (bool is_deterministic : {false, true}) {
        const auto run = [&](auto args, auto&& kernel) {
          args.layout = {.s = z.s, .b = z.b, .spans = spans.gpu(), .num_spans = z.b, .form = form};
          args.options = {.scale = 0.1, .is_deterministic = is_deterministic};
          if (!cudnn_refusal(args).empty()) return;
          const Zeros workspace(DType::kUInt8, {cudnn_workspace_bytes(args)});
          args.workspace = workspace;
          EXPECT_TRUE(kernel(stream_, args))
              << fmt::format("s {} b {} n {} d {} packed {} deterministic {}: no plan fits in {} bytes", z.s, z.b, z.n,
                             z.d, form == SpanForm::kPacked, is_deterministic, cudnn_workspace_bytes(args));
        };
        run(AttentionForwardArgs{.q = q, .k = k, .v = v, .o = o, .lse = lse},
            [](const auto& stream, const auto& args) { return cudnn_attention_forward(stream, args); });
        run(AttentionBackwardArgs{.q = q,
                                  .k = k,
                                  .v = v,
                                  .o = o,
                                  .lse = lse,
                                  .grad_o = grad_o,
                                  .grad_q = grad_q,
                                  .grad_k = grad_k,
                                  .grad_v = grad_v},
            [](const auto& stream, const auto& args) { return cudnn_attention_backward(stream, args); });
      }
  }
}

}  // namespace
}  // namespace megatron::kernels
