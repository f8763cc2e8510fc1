#include "megatron/kernels/attention.h"

#include <gtest/gtest.h>

#include "tests/kernels/attention_case.h"
#include "tests/testing/finite_difference.h"

namespace megatron::kernels {
namespace {

using testing::GuardedTensor;
using testing::kFloatingTypes;
using testing::kGradientTolerance;
using testing::largest_error;
using testing::tolerance;

/// Forward against the formulas. Rounded are the scores, sums of d terms, and sums over keys of about unit size.
void expect_forward(const AttentionCase& test, const AttentionReference& reference, const std::string& what) {
  const double bound = tolerance(test.compute, test.sizes.d + test.sizes.s_k);
  EXPECT_LE(largest_error(test.o, reference.o, bound, epsilon(test.o.dtype())), 1) << what;
  EXPECT_LE(largest_error(test.lse, reference.lse, bound, epsilon(test.compute)), 1) << what;
  EXPECT_LE(largest_error(test.max_logits, reference.max_logits, bound, epsilon(test.compute)), 1) << what;
}

/// Backward against the formulas. Beside the sums, o was rounded to the storage type, which enters each gradient by way
/// of dot(o, grad_o), a sum of dv terms.
void expect_backward(const AttentionCase& test, const AttentionReference& reference, const std::string& what) {
  const AttentionSizes& z = test.sizes;
  const DType storage = test.o.dtype();
  const double bound = tolerance(test.compute, z.d + z.dv + z.s * z.n / z.g, std::sqrt(static_cast<double>(z.dv))) +
                       (storage == test.compute ? 0 : tolerance(storage, z.dv));
  EXPECT_LE(largest_error(test.grad_q, reference.grad_q, bound, epsilon(storage)), 1) << what;
  EXPECT_LE(largest_error(test.grad_k, reference.grad_k, bound, epsilon(storage)), 1) << what;
  EXPECT_LE(largest_error(test.grad_v, reference.grad_v, bound, epsilon(storage)), 1) << what;
  const double rows = std::sqrt(static_cast<double>(z.s * z.b));
  EXPECT_LE(largest_error(test.grad_sink, reference.grad_sink, rows * bound, epsilon(storage)), 1) << what;
}

void run_and_expect(AttentionCase& test, const std::string& what, int num_threads = 1,
                    InstructionSet set = widest_instruction_set()) {
  const AttentionReference reference(test);
  test.forward(num_threads, set);
  expect_forward(test, reference, what);
  test.backward(num_threads, set);
  expect_backward(test, reference, what);
  EXPECT_TRUE(test.guards_are_intact()) << what;
}

TEST(Attention, EqualsTheFormulasForAllDtypesAndOddSizes) {
  for (DType dtype : kFloatingTypes)
    for (const AttentionSizes& sizes :
         {AttentionSizes{1, 1, 1, 1, 1, 5, 5}, AttentionSizes{7, 7, 2, 5, 5, 5, 8},
          AttentionSizes{31, 31, 1, 4, 2, 8, 5}, AttentionSizes{33, 33, 1, 3, 1, 20, 20},
          AttentionSizes{65, 65, 2, 2, 1, 64, 20}, AttentionSizes{130, 130, 1, 2, 2, 8, 64}})
      for (bool causal : {true, false})
        for (int64_t gap : {0, 3}) {
          AttentionCase test(dtype, sizes, gap);
          test.options.is_causal = causal;
          run_and_expect(test, fmt::format("{} s={} d={} causal {} gap {}", dtype, sizes.s, sizes.d, causal, gap));
        }
}

TEST(Attention, EqualsTheFormulasOnEveryInstructionSet) {
  for (int set = 0; set <= static_cast<int>(widest_instruction_set()); ++set)
    for (DType dtype : kFloatingTypes) {
      AttentionCase test(dtype, {70, 70, 2, 4, 2, 20, 24});
      test.options.dropout = 0.2;
      test.options.softmax = AttentionSoftmax::kLearnable;
      run_and_expect(test, fmt::format("{} set {}", dtype, set), 1, static_cast<InstructionSet>(set));
    }
}

TEST(Attention, WindowsHideKeysOnBothSides) {
  for (bool causal : {true, false})
    for (int64_t left : {-1, 0, 5, 70})
      for (int64_t right : {-1, 0, 3, 90}) {
        AttentionCase test(DType::kFloat64, {100, 100, 1, 2, 1, 8, 8});
        test.options.is_causal = causal;
        test.options.window_left = left;
        test.options.window_right = right;
        run_and_expect(test, fmt::format("causal {} window {}, {}", causal, left, right));
      }
}

TEST(Attention, SoftmaxVariantsAddTheirTermToTheDenominator) {
  for (AttentionSoftmax softmax :
       {AttentionSoftmax::kVanilla, AttentionSoftmax::kOffByOne, AttentionSoftmax::kLearnable})
    for (DType dtype : kFloatingTypes) {
      AttentionCase test(dtype, {40, 40, 2, 4, 2, 8, 8});
      test.options.softmax = softmax;
      run_and_expect(test, fmt::format("{} softmax {}", dtype, static_cast<int>(softmax)));
    }
}

// Scores of this scale are far beyond the cap and near 0.
TEST(Attention, ASoftCapBendsScoresBeforeMaskAndSoftmaxOnEveryInstructionSet) {
  for (int set = 0; set <= static_cast<int>(widest_instruction_set()); ++set)
    for (DType dtype : kFloatingTypes)
      for (double scale : {0.05, 3.0}) {
        AttentionCase test(dtype, {70, 70, 2, 4, 2, 20, 24});
        test.options.scale = scale;
        test.options.soft_cap = 1.5;
        test.options.window_left = 40;
        test.options.dropout = 0.2;
        run_and_expect(test, fmt::format("{} set {} scale {}", dtype, set, scale), 1, static_cast<InstructionSet>(set));
      }
}

TEST(Attention, GradientsMatchFiniteDifferencesWithEveryOption) {
  for (AttentionSoftmax softmax :
       {AttentionSoftmax::kVanilla, AttentionSoftmax::kOffByOne, AttentionSoftmax::kLearnable})
    for (double dropout : {0.0, 0.3}) {
      AttentionCase test(DType::kFloat64, {9, 9, 2, 4, 2, 5, 6});
      test.options.softmax = softmax;
      test.options.dropout = dropout;
      test.options.window_left = dropout > 0 ? 4 : -1;
      test.options.soft_cap = dropout > 0 ? 0.8 : 0;
      test.forward();
      test.backward();
      const auto loss = [&] {
        test.forward();
        return testing::dot(test.o, test.grad_o);
      };
      EXPECT_LE(testing::gradient_error(test.q, test.grad_q, loss), kGradientTolerance);
      EXPECT_LE(testing::gradient_error(test.k, test.grad_k, loss), kGradientTolerance);
      EXPECT_LE(testing::gradient_error(test.v, test.grad_v, loss), kGradientTolerance);
      if (softmax == AttentionSoftmax::kLearnable) {
        EXPECT_LE(testing::gradient_error(test.sink, test.grad_sink, loss), kGradientTolerance);
      }
    }
}

TEST(Attention, RowsOutsideOfSpansGiveZeroAndRowsWithoutKeysToo) {
  for (DType dtype : kFloatingTypes) {
    AttentionCase test(dtype, {80, 80, 3, 2, 1, 8, 8});
    test.spans = {{.batch = 0, .query_length = 70, .key_length = 70},                                  // padded
                  {.batch = 1, .query_begin = 3, .query_length = 5, .key_begin = 3, .key_length = 5},  // packed
                  {.batch = 1, .query_begin = 10, .query_length = 66, .key_begin = 10, .key_length = 66},
                  {.batch = 2, .query_length = 4, .key_length = 0}};  // no keys
    run_and_expect(test, std::string(name_of(dtype)));
    for (int64_t c = 0; c < 8; ++c) EXPECT_EQ(test.o[((79 * 3 + 0) * 2 + 1) * 8 + c], 0);
  }
}

TEST(Attention, KeyRangesOfSpansMayOverlap) {
  AttentionCase test(DType::kFloat64, {90, 120, 2, 2, 1, 8, 8});
  test.spans.clear();
  for (int32_t column : {0, 1}) {
    test.spans.push_back({.batch = column, .query_length = 20, .key_length = 70, .query_offset = 50});
    test.spans.push_back(
        {.batch = column, .query_begin = 20, .query_length = 70, .key_length = 120, .query_offset = 50});
  }
  run_and_expect(test, "overlap");
}

/// Bytes of rows [first, first + length) of one column of [s, b, n, d].
std::vector<double> rows_of(const GuardedTensor& x, int64_t column, int64_t first, int64_t length) {
  const int64_t width = x.shape()[2] * x.shape()[3];
  std::vector<double> values;
  for (int64_t row = first; row < first + length; ++row)
    for (int64_t c = 0; c < width; ++c) values.push_back(x[(row * x.shape()[1] + column) * width + c]);
  return values;
}
void copy_rows(const GuardedTensor& from, int64_t first, GuardedTensor& to) {
  const int64_t width = to.shape().num_elements() / to.shape()[0];
  for (int64_t i = 0; i < to.shape().num_elements(); ++i) to.store(i, from[first * width + i]);
}

TEST(Attention, PackedSequencesEqualSeparateOnesBitwise) {
  const std::array<std::array<int32_t, 2>, 3> pieces = {{{0, 70}, {70, 1}, {71, 59}}};
  for (DType dtype : kFloatingTypes) {
    AttentionCase packed(dtype, {130, 130, 1, 4, 2, 8, 8});
    packed.spans.clear();
    for (const auto& [begin, length] : pieces)
      packed.spans.push_back({.query_begin = begin, .query_length = length, .key_begin = begin, .key_length = length});
    packed.forward();
    packed.backward();
    for (const auto& [begin, length] : pieces) {
      AttentionCase alone(dtype, {length, length, 1, 4, 2, 8, 8});
      for (auto member : {&AttentionCase::q, &AttentionCase::k, &AttentionCase::v, &AttentionCase::grad_o})
        copy_rows(packed.*member, begin, alone.*member);
      alone.forward();
      alone.backward();
      for (auto member : {&AttentionCase::o, &AttentionCase::grad_q, &AttentionCase::grad_k, &AttentionCase::grad_v})
        EXPECT_EQ(rows_of(packed.*member, 0, begin, length), (alone.*member).values()) << name_of(dtype);
    }
  }
}

TEST(Attention, QueriesAfterCachedKeysEqualTheSameRowsOfTheWholeSequenceBitwise) {
  for (int64_t cached : {1, 64, 99}) {
    AttentionCase whole(DType::kFloat32, {100, 100, 2, 2, 1, 20, 20}),
        rest(DType::kFloat32, {100 - cached, 100, 2, 2, 1, 20, 20});
    copy_rows(whole.q, cached, rest.q);
    whole.options.dropout = rest.options.dropout = 0.25;
    rest.rows.first_position = cached;
    whole.forward();
    rest.forward();
    for (int64_t column : {0, 1})
      EXPECT_EQ(rows_of(whole.o, column, cached, 100 - cached), rows_of(rest.o, column, 0, 100 - cached)) << cached;
  }
}

TEST(Attention, SlicesOfAPackedProjectionEqualSeparateTensorsBitwise) {
  AttentionCase test(DType::kBFloat16, {33, 33, 2, 3, 3, 8, 8});
  GuardedTensor qkv(DType::kBFloat16, {33, 2, 3, 24}, testing::random_values(33 * 2 * 3 * 24, 9)), grad_qkv = qkv;
  const auto slice = [](GuardedTensor& packed, int64_t part) {
    View view = packed.view();
    view.shape[3] = 8;
    view.data = static_cast<char*>(view.data) + part * 8 * size_of(view.dtype);
    return view;
  };
  for (int64_t i = 0; i < 33 * 2 * 3; ++i)
    for (int64_t c = 0; c < 8; ++c) {
      test.q.store(i * 8 + c, qkv[i * 24 + c]);
      test.k.store(i * 8 + c, qkv[i * 24 + 8 + c]);
      test.v.store(i * 8 + c, qkv[i * 24 + 16 + c]);
    }
  test.forward();
  test.backward();
  const CpuStream stream{.num_threads = 1};
  AttentionBackwardArgs args = test.backward_args();
  args.q = slice(qkv, 0), args.k = slice(qkv, 1), args.v = slice(qkv, 2);
  args.grad_q = slice(grad_qkv, 0), args.grad_k = slice(grad_qkv, 1), args.grad_v = slice(grad_qkv, 2);
  args.workspace = test.backward_workspace.view();
  attention_backward(stream, args);
  for (int64_t i = 0; i < 33 * 2 * 3; ++i)
    for (int64_t c = 0; c < 8; ++c) {
      ASSERT_EQ(test.grad_q[i * 8 + c], grad_qkv[i * 24 + c]);
      ASSERT_EQ(test.grad_k[i * 8 + c], grad_qkv[i * 24 + 8 + c]);
      ASSERT_EQ(test.grad_v[i * 8 + c], grad_qkv[i * 24 + 16 + c]);
    }
}

TEST(Attention, DropoutKeepsTheExpectedShare) {
  AttentionCase test(DType::kFloat32, {200, 200, 1, 4, 4, 8, 8});
  test.options.is_causal = false;
  test.options.dropout = 0.1;
  test.q.set(std::vector<double>(static_cast<size_t>(test.q.shape().num_elements()), 0));
  test.v.set(std::vector<double>(static_cast<size_t>(test.v.shape().num_elements()), 1));
  test.forward();
  double mean = 0;  // every probability is 1 / 200, so an output is the kept share of its row over 0.9
  for (int64_t i = 0; i < 200 * 4; ++i) mean += test.o[i * 8] * 0.9 / (200 * 4);
  const double deviation = std::sqrt(0.9 * 0.1 / (200.0 * 200 * 4));
  EXPECT_NEAR(mean, 0.9, 5 * deviation);
}

TEST(Attention, DropoutMaskBelongsToTheGlobalHead) {
  AttentionCase all(DType::kFloat32, {40, 40, 1, 4, 1, 8, 8}), shard(DType::kFloat32, {40, 40, 1, 2, 1, 8, 8});
  all.options.dropout = shard.options.dropout = 0.5;
  shard.options.first_head = 2;
  for (int64_t row = 0; row < 40; ++row)
    for (int64_t c = 0; c < 16; ++c) shard.q.store(row * 16 + c, all.q[row * 32 + 16 + c]);
  all.forward();
  shard.forward();
  for (int64_t row = 0; row < 40; ++row)
    for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(shard.o[row * 16 + c], all.o[row * 32 + 16 + c]);
}

TEST(Attention, RejectsOperandsThatDoNotFitTogether) {
  AttentionCase test(DType::kFloat32, {4, 4, 1, 3, 2, 8, 8}), other(DType::kBFloat16, {4, 4, 1, 2, 2, 8, 8});
  EXPECT_THROW(test.forward(), ShapeError);
  AttentionForwardArgs args = other.forward_args();
  args.v.dtype = DType::kFloat16;
  EXPECT_THROW(attention_forward({.num_threads = 1}, args), DtypeError);
}

TEST(Attention, RepeatsBitwiseOnAnyNumberOfThreads) {
  for (DType dtype : kFloatingTypes) {
    const AttentionSizes sizes{130, 130, 2, 4, 2, 20, 24};
    AttentionCase one(dtype, sizes), again(dtype, sizes), two(dtype, sizes), three(dtype, sizes);
    int num_threads = 1;
    for (AttentionCase* test : {&one, &again, &two, &three}) {
      test->options.dropout = 0.1;
      test->options.softmax = AttentionSoftmax::kLearnable;
      if (test != &one && test != &again) ++num_threads;
      run_and_expect(*test, std::string(name_of(dtype)), num_threads);
      for (auto member : {&AttentionCase::o, &AttentionCase::lse, &AttentionCase::grad_q, &AttentionCase::grad_k,
                          &AttentionCase::grad_v, &AttentionCase::grad_sink})
        EXPECT_EQ((one.*member).values(), (test->*member).values()) << name_of(dtype) << " threads " << num_threads;
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
