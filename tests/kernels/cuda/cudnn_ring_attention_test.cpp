// cuDNN's attention where queries and keys are those of different ranks. Skipped where there is no GPU or no cuDNN.
#include "tests/kernels/cuda/cudnn_attention_case.h"

namespace megatron::kernels {
namespace {

/// A ring has columns with one span each, or two documents of which half of the keys or queries is elsewhere.
TEST_F(CudnnAttention, QueriesSeeAllKeysOfAnotherRank) {
  const auto expect_all_visible = [&](DType dtype, const AttentionSizes& z, std::vector<SequenceSpan> spans,
                                      bool is_deterministic) {
    for (SequenceSpan& span : spans) span.query_offset = span.key_length;
    expect_agreement(dtype, z, spans, SpanForm::kAllVisible, {.is_deterministic = is_deterministic});
  };
  const SequenceSpan half_keys{.query_length = 256, .key_length = 128};
  const SequenceSpan half_queries{.query_begin = 128, .query_length = 128, .key_length = 256};
  for (const bool is_deterministic : {false, true})
    for (const SequenceSpan& span : {half_keys, half_queries}) {
      SequenceSpan second = span;
      second.batch = 1;
      expect_all_visible(DType::kBFloat16, {256, 256, 1, 4, 2, 128, 128}, {span}, is_deterministic);
      expect_all_visible(DType::kFloat16, {256, 256, 2, 3, 3, 64, 64}, {span, second}, is_deterministic);
    }
  const std::vector<SequenceSpan> documents = {
      {.query_begin = 16, .query_length = 70, .key_begin = 0, .key_length = 35},
      {.query_begin = 90, .query_length = 10, .key_begin = 40, .key_length = 5},
      {.query_begin = 100, .query_length = 100, .key_begin = 45, .key_length = 155}};
  expect_all_visible(DType::kBFloat16, {240, 210, 1, 4, 1, 64, 64}, documents, false);
  expect_all_visible(DType::kBFloat16, {240, 210, 1, 2, 2, 128, 128}, documents, true);
}

/// Masks are aligned so if the keys of all ranks are gathered.
TEST_F(CudnnAttention, MasksEndAtTheLastKeys) {
  const auto expect_aligned = [&](DType dtype, const AttentionSizes& z, std::vector<SequenceSpan> spans,
                                  const AttentionOptions& options) {
    for (SequenceSpan& span : spans) span.query_offset = span.key_length - span.query_length;
    expect_agreement(dtype, z, spans, SpanForm::kEndsAligned, options);
  };
  const SequenceSpan chunk{.query_begin = 64, .query_length = 64, .key_length = 320};
  SequenceSpan second = chunk;
  second.batch = 1;
  const AttentionOptions plain{.is_deterministic = false}, deterministic{.is_deterministic = true};
  expect_aligned(DType::kBFloat16, {128, 512, 1, 4, 2, 128, 128}, {chunk}, plain);
  expect_aligned(DType::kFloat16, {128, 512, 2, 3, 3, 64, 64}, {chunk, second}, plain);
  expect_aligned(DType::kBFloat16, {128, 512, 2, 4, 2, 128, 128}, {chunk, second}, deterministic);
  const std::vector<SequenceSpan> documents = {
      {.query_begin = 3, .query_length = 40, .key_begin = 0, .key_length = 41},
      {.query_begin = 50, .query_length = 1, .key_begin = 60, .key_length = 7},
      {.query_begin = 51, .query_length = 77, .key_begin = 70, .key_length = 200}};
  expect_aligned(DType::kBFloat16, {130, 290, 1, 4, 2, 64, 64}, documents, plain);
  expect_aligned(DType::kBFloat16, {130, 290, 1, 4, 2, 64, 64}, documents,
                 {.window_left = 30, .is_deterministic = false});
}

}  // namespace
}  // namespace megatron::kernels
