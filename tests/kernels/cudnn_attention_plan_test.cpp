#include "megatron/kernels/cuda/attention/cudnn_attention_plan.h"

#include <gtest/gtest.h>

namespace megatron::kernels {
namespace {

struct Sizes {
  int64_t s = 4096, b = 1, n = 32, g = 8, d = 128, dv = 128;
};

ConstView heads(const Sizes& z, int64_t num_heads, int64_t width, DType dtype = DType::kBFloat16) {
  const Shape shape{z.s, z.b, num_heads, width};
  return {.dtype = dtype, .shape = shape, .strides = shape.contiguous_strides()};
}
View result(const ConstView& x) { return {.dtype = x.dtype, .shape = x.shape, .strides = x.strides}; }

AttentionForwardArgs forward_args(const Sizes& z, DType dtype = DType::kBFloat16) {
  AttentionForwardArgs args{.q = heads(z, z.n, z.d, dtype), .k = heads(z, z.g, z.d, dtype)};
  args.v = heads(z, z.g, z.dv, dtype);
  args.o = result(heads(z, z.n, z.dv, dtype));
  args.layout = {.s = z.s, .b = z.b, .num_spans = z.b, .form = SpanForm::kUniform};
  return args;
}
AttentionBackwardArgs backward_args(const Sizes& z, bool is_deterministic = false) {
  const AttentionForwardArgs forward = forward_args(z);
  AttentionBackwardArgs args{.q = forward.q, .k = forward.k, .v = forward.v};
  args.o = args.grad_o = forward.o;
  args.layout = forward.layout;
  args.options.is_deterministic = is_deterministic;
  args.grad_q = result(args.q), args.grad_k = result(args.k), args.grad_v = result(args.v);
  return args;
}

TEST(CudnnAttentionPlan, LeavesSoftCapsAndLargestLogitsToBuiltInKernels) {
  AttentionForwardArgs capped = forward_args({}), largest = capped;
  capped.options.soft_cap = 50;
  EXPECT_EQ(cudnn_refusal(capped), "the scores have a soft cap");
  largest.max_logits = {.dtype = DType::kFloat64, .shape = {32}, .strides = {1}};  // without data, as on meta devices
  EXPECT_EQ(cudnn_refusal(largest), "the largest logits of the heads are wanted");
}

TEST(CudnnAttentionPlan, TakesTheShapesOfTraining) {
  for (const Sizes& z : {Sizes{}, Sizes{8192, 1, 32, 8, 128, 128}, Sizes{1024, 32, 12, 12, 64, 64},
                         Sizes{131, 3, 5, 1, 256, 256}, Sizes{512, 1, 16, 16, 192, 128}, Sizes{512, 1, 4, 4, 72, 72}}) {
    for (DType dtype : {DType::kBFloat16, DType::kFloat16}) EXPECT_EQ(cudnn_refusal(forward_args(z, dtype)), "");
    for (bool is_deterministic : {false, true}) EXPECT_EQ(cudnn_refusal(backward_args(z, is_deterministic)), "");
  }
}

TEST(CudnnAttentionPlan, SaysWhyItRejects) {
  const auto expect_refusal = [](const char* reason, auto change, const Sizes& z = {}) {
    AttentionBackwardArgs args = backward_args(z);
    change(args);
    EXPECT_EQ(cudnn_refusal(args), reason);
  };
  using Args = AttentionBackwardArgs;
  const auto nothing = [](Args&) {};
  expect_refusal("it computes in bf16 and fp16 only", [](Args& args) { args.q.dtype = DType::kFloat32; });
  expect_refusal(
      "its dropout mask would depend on the layout (--attention-dropout 0 needs none, --cudnn-attention-dropout "
      "permits "
      "it)",
      [](Args& args) { args.options.dropout = 0.1; });
  expect_refusal("the softmax has a sink", [](Args& args) { args.options.softmax = AttentionSoftmax::kOffByOne; });
  expect_refusal("sequences share rows, or their masks differ", [](Args& args) { args.layout.form = SpanForm::kAny; });
  expect_refusal("the window hides keys of other ranks", [](Args& args) {
    args.layout.form = SpanForm::kAllVisible;
    args.options.window_left = 9;
  });
  for (const SpanForm form : {SpanForm::kAllVisible, SpanForm::kEndsAligned})
    expect_refusal("its dropout mask counts keys from the first one here", [&](Args& args) {
      args.layout.form = form;
      args.options.dropout = 0.1;
      args.options.is_dropout_of_cudnn = true;
    });
  expect_refusal("there are more keys than queries", [](Args& args) { args.k.shape[0] = 5000; });
  expect_refusal("there is one query, or none", nothing, {.s = 1});
  expect_refusal("head sizes are not multiples of 8", nothing, {.dv = 100});
  expect_refusal("heads are larger than 256", nothing, {.d = 264});
  expect_refusal("head sizes of packed sequences are not multiples of 16",
                 [](Args& args) { args.layout.form = SpanForm::kPacked; }, {.d = 72});
  expect_refusal("the window is open to the right", [](Args& args) {
    args.options.is_causal = false;
    args.options.window_left = 9;
  });
  expect_refusal("heads do not begin at multiples of 16 bytes", [](Args& args) { args.grad_v.strides[0] += 4; });
  expect_refusal("heads do not begin at multiples of 16 bytes", [](Args& args) {
    args.o.data = nullptr;
    args.q.data = reinterpret_cast<void*>(uintptr_t{8});
  });
  expect_refusal("deterministic gradients of so many keys take more than 1 GiB",
                 [](Args& args) { args.options.is_deterministic = true; }, {.s = 16384});
}

/// cuDNN counts heads and columns of a mask from 0 in each piece.
TEST(CudnnAttentionPlan, RejectsDropoutInBothDirectionsWhereTheBackwardComesInPieces) {
  const auto refusal_of = [](auto args, bool is_deterministic, SpanForm form) {
    args.options.dropout = 0.1;
    args.options.is_dropout_of_cudnn = true;
    args.options.is_deterministic = is_deterministic;
    args.layout.form = form;
    return std::string(cudnn_refusal(args));
  };
  for (const Sizes& z :
       {Sizes{1024, 64, 12, 12, 64, 64}, Sizes{4096, 2, 32, 8, 128, 128}, Sizes{8192, 1, 32, 8, 128, 128},
        Sizes{1024, 32, 12, 12, 64, 64}, Sizes{131, 3, 5, 1, 256, 256}})
    for (SpanForm form : {SpanForm::kUniform, SpanForm::kPacked}) {
      AttentionBackwardArgs backward = backward_args(z, true);
      backward.layout.form = form;
      if (!cudnn_refusal(backward).empty()) continue;
      const CudnnPiece piece = cudnn_piece(backward);
      const bool is_whole = piece.num_groups == z.g && piece.num_columns == z.b;
      EXPECT_EQ(refusal_of(backward, true, form).empty(), is_whole) << z.s << " " << z.b;
      EXPECT_EQ(refusal_of(forward_args(z), true, form).empty(), is_whole) << z.s << " " << z.b;
      EXPECT_EQ(refusal_of(forward_args(z), false, form), "");
      EXPECT_EQ(refusal_of(backward, false, form), "");
    }
}

TEST(CudnnAttentionPlan, BoundsTheWorkspacesThatCudnnHasAskedFor) {
  constexpr double kMiB = 1 << 20;
  // cuDNN 9.19 on a Hopper device: MiB of batches of 2, 16 query heads and 4096 rows.
  const auto expect_near = [](const AttentionBackwardArgs& args, double mebibytes) {
    const auto bound = static_cast<double>(cudnn_workspace_bytes(args)) / kMiB;
    EXPECT_GE(bound, mebibytes);
    EXPECT_LE(bound, mebibytes + 2);
  };
  expect_near(backward_args({4096, 2, 16, 4, 128, 128}), 128.5);
  expect_near(backward_args({4096, 2, 16, 16, 128, 128}), 64.5);
  expect_near(backward_args({4096, 2, 16, 4, 256, 256}), 256.5);
  EXPECT_LE(static_cast<double>(cudnn_workspace_bytes(forward_args({}))), 2 * kMiB);
}

TEST(CudnnAttentionPlan, PiecesOfDeterministicBackwardFitAndCoverAllHeads) {
  for (const Sizes& z :
       {Sizes{4096, 1, 32, 8, 128, 128}, Sizes{4096, 6, 32, 8, 128, 128}, Sizes{3700, 1, 40, 8, 64, 64},
        Sizes{1000, 7, 12, 12, 64, 64}, Sizes{11000, 2, 4, 1, 128, 128}})
    for (SpanForm form : {SpanForm::kUniform, SpanForm::kPacked}) {
      AttentionBackwardArgs args = backward_args(z, true);
      args.layout.form = form;
      if (!cudnn_refusal(args).empty()) continue;
      const CudnnPiece piece = cudnn_piece(args);
      EXPECT_EQ(z.g % piece.num_groups, 0);
      EXPECT_EQ(z.b % piece.num_columns, 0);
      AttentionBackwardArgs fast = args;
      fast.options.is_deterministic = false;
      EXPECT_LE(cudnn_workspace_bytes(args), cudnn_workspace_bytes(fast) + kDeterministicScoreBytes);
    }
  const CudnnPiece whole = cudnn_piece(backward_args({4096, 6, 32, 8, 128, 128}));
  EXPECT_EQ(whole.num_groups, 8);
  EXPECT_EQ(whole.num_columns, 6);
}

TEST(CudnnAttentionPlan, TakesKeysOfOtherRanks) {
  for (const SpanForm form : {SpanForm::kAllVisible, SpanForm::kEndsAligned})
    for (const int64_t num_keys : {1024, 4096, 16384}) {
      AttentionForwardArgs forward = forward_args({});
      AttentionBackwardArgs backward = backward_args({});
      for (ConstView* keys : {&forward.k, &forward.v, &backward.k, &backward.v}) keys->shape[0] = num_keys;
      for (View* gradient : {&backward.grad_k, &backward.grad_v}) gradient->shape[0] = num_keys;
      forward.layout.form = backward.layout.form = form;
      EXPECT_EQ(cudnn_refusal(forward), "");
      EXPECT_EQ(cudnn_refusal(backward), "");
      AttentionBackwardArgs fewer = backward;
      fewer.k.shape[0] = num_keys / 2;
      EXPECT_EQ(cudnn_workspace_bytes(backward) - cudnn_workspace_bytes(fewer), 4 * num_keys / 2 * 4 * 2 * 8 * 128)
          << "gradients of k and v of each of 4 query heads a key head, in fp32";
    }
}

TEST(CudnnAttentionPlan, PackedBatchesOfLikeSizeShareAPlan) {
  AttentionForwardArgs args = forward_args({});
  args.layout.form = SpanForm::kPacked;
  for (int64_t num_spans : {1, 2, 5, 8, 9, 300}) {
    args.layout.num_spans = num_spans;
    const int64_t num = cudnn_num_sequences(args.layout);
    EXPECT_GE(num, num_spans);
    EXPECT_LT(num, 2 * num_spans);
    EXPECT_EQ(num & (num - 1), 0);
  }
}

}  // namespace
}  // namespace megatron::kernels
