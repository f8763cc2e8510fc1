// Operands of attention, and attention written from its formulas in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "megatron/kernels/attention.h"
#include "megatron/kernels/cpu/attention.h"
#include "tests/testing/guarded_tensor.h"
#include "tests/testing/tolerance.h"

namespace megatron::kernels {

struct AttentionSizes {
  int64_t s = 1, s_k = 1, b = 1, n = 1, g = 1, d = 1, dv = 1;
};

inline std::vector<SequenceSpan> uniform_spans(const AttentionSizes& sizes) {
  std::vector<SequenceSpan> spans;
  for (int32_t column = 0; column < sizes.b; ++column)
    spans.push_back({.batch = column,
                     .query_length = static_cast<int32_t>(sizes.s),
                     .key_length = static_cast<int32_t>(sizes.s_k),
                     .query_offset = static_cast<int32_t>(sizes.s_k - sizes.s)});
  return spans;
}

/// Operands with random values; results hold the guard pattern until they are written.
struct AttentionCase {
  AttentionCase(DType dtype, const AttentionSizes& sizes, int64_t gap = 0)
      : sizes(sizes), spans(uniform_spans(sizes)), compute(testing::compute_dtype(dtype)) {
    const Shape q_shape{sizes.s, sizes.b, sizes.n, sizes.d}, k_shape{sizes.s_k, sizes.b, sizes.g, sizes.d};
    const Shape v_shape{sizes.s_k, sizes.b, sizes.g, sizes.dv}, o_shape{sizes.s, sizes.b, sizes.n, sizes.dv};
    const auto random = [&](const Shape& shape, uint64_t seed) {
      return testing::GuardedTensor(dtype, shape, testing::random_values(shape.num_elements(), seed), gap);
    };
    const auto result = [&](const Shape& shape) { return testing::GuardedTensor(dtype, shape, {}, gap); };
    q = random(q_shape, 1), k = random(k_shape, 2), v = random(v_shape, 3), grad_o = random(o_shape, 4);
    o = result(o_shape), grad_q = result(q_shape), grad_k = result(k_shape), grad_v = result(v_shape);
    sink = random({sizes.n}, 5), grad_sink = result({sizes.n});
    lse = testing::GuardedTensor(compute, {sizes.n, sizes.b, sizes.s}, {}, gap);
    options = {.scale = 1 / std::sqrt(static_cast<double>(sizes.d)), .dropout_key = {77}, .state = &state};
    rows = {.first_sample = 3, .sequence_length = 1000, .b = sizes.b};
  }

  SequenceLayoutView layout() const {
    return {.s = sizes.s,
            .b = sizes.b,
            .spans = spans.data(),
            .num_spans = static_cast<int64_t>(spans.size()),
            .positions = nullptr,
            .first_position = 0,
            .rows = rows};
  }
  AttentionForwardArgs forward_args() {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .sink = sink.view(),
            .layout = layout(),
            .options = options,
            .o = o.view(),
            .lse = lse.view(),
            .workspace = {}};
  }
  AttentionBackwardArgs backward_args() {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .sink = sink.view(),
            .o = o.view(),
            .lse = lse.view(),
            .grad_o = grad_o.view(),
            .layout = layout(),
            .options = options,
            .grad_q = grad_q.view(),
            .grad_k = grad_k.view(),
            .grad_v = grad_v.view(),
            .grad_sink = grad_sink.view(),
            .workspace = {}};
  }
  void forward(int num_threads = 1, InstructionSet set = widest_instruction_set()) {
    const CpuStream stream{.num_threads = num_threads};
    AttentionForwardArgs args = forward_args();
    forward_workspace = testing::workspace_of(attention_forward_workspace_bytes(stream, args));
    args.workspace = forward_workspace.view();
    max_logits = testing::GuardedTensor(DType::kFloat64, {sizes.n}, std::vector<double>(static_cast<size_t>(sizes.n)));
    args.max_logits = max_logits.view();
    attention_forward_on(set, stream, args);
  }
  void backward(int num_threads = 1, InstructionSet set = widest_instruction_set()) {
    const CpuStream stream{.num_threads = num_threads};
    AttentionBackwardArgs args = backward_args();
    backward_workspace = testing::workspace_of(attention_backward_workspace_bytes(stream, args));
    args.workspace = backward_workspace.view();
    attention_backward_on(set, stream, args);
  }
  bool guards_are_intact() const {
    for (const testing::GuardedTensor* tensor :
         {&o, &lse, &grad_q, &grad_k, &grad_v, &grad_sink, &forward_workspace, &backward_workspace})
      if (!tensor->guards_are_intact()) return false;
    return true;
  }

  AttentionSizes sizes;
  std::vector<SequenceSpan> spans;
  DType compute;
  StepState state{.step = 11};
  AttentionOptions options;
  RowMap rows;
  testing::GuardedTensor q, k, v, sink, grad_o, o, lse, grad_q, grad_k, grad_v, grad_sink;
  testing::GuardedTensor max_logits{DType::kFloat64, {0}};
  testing::GuardedTensor forward_workspace{DType::kUInt8, {0}}, backward_workspace{DType::kUInt8, {0}};
};

/// Results of the formulas, with the mask decided element by element.
class AttentionReference {
 public:
  explicit AttentionReference(const AttentionCase& test)
      : test_(test), q_(test.q.values()), k_(test.k.values()), v_(test.v.values()), grad_o_(test.grad_o.values()) {
    const AttentionSizes& z = test.sizes;
    o.assign(grad_o_.size(), 0);
    lse.assign(static_cast<size_t>(z.n * z.b * z.s), -std::numeric_limits<double>::infinity());
    grad_q.assign(q_.size(), 0);
    grad_k.assign(k_.size(), 0);
    grad_v.assign(v_.size(), 0);
    grad_sink.assign(static_cast<size_t>(z.n), 0);
    max_logits.assign(static_cast<size_t>(z.n), 0);
    for (const SequenceSpan& span : test.spans)
      for (int64_t head = 0; head < z.n; ++head)
        for (int64_t i = 0; i < span.query_length; ++i) add_query(span, head, i);
  }

  std::vector<double> o, lse, grad_q, grad_k, grad_v, grad_sink;
  std::vector<double> max_logits;  // raised from 0

 private:
  bool sees(const SequenceSpan& span, int64_t i, int64_t j) const {
    const AttentionOptions& options = test_.options;
    const int64_t p = span.query_offset + i;
    if (options.is_causal && j > p) return false;
    if (options.window_left >= 0 && j < p - options.window_left) return false;
    return options.window_right < 0 || j <= p + options.window_right;
  }
  double dropout_factor(const SequenceSpan& span, int64_t head, int64_t i, int64_t j) const {
    const AttentionOptions& options = test_.options;
    if (options.dropout == 0) return 1;
    const int64_t row = test_.rows((span.query_begin + i) * test_.sizes.b + span.batch);
    const RandomKey key = options.dropout_key.at(options.first_head + head);
    if (draw(key, test_.state.step, row, j) < dropout_threshold(options.dropout)) return 0;
    return 1 / (1 - options.dropout);
  }
  static double dot(const double* x, const double* y, int64_t size) {
    double sum = 0;
    for (int64_t c = 0; c < size; ++c) sum += x[c] * y[c];
    return sum;
  }

  void add_query(const SequenceSpan& span, int64_t head, int64_t i) {
    const AttentionSizes& z = test_.sizes;
    const int64_t row = (span.query_begin + i) * z.b + span.batch, group = head / (z.n / z.g);
    const double* q = &q_[static_cast<size_t>((row * z.n + head) * z.d)];
    const double* grad_o = &grad_o_[static_cast<size_t>((row * z.n + head) * z.dv)];
    const auto key_row = [&](int64_t j) { return ((span.key_begin + j) * z.b + span.batch) * z.g + group; };

    double sink = 0;  // additional term of the denominator
    if (test_.options.softmax == AttentionSoftmax::kOffByOne) sink = 1;
    if (test_.options.softmax == AttentionSoftmax::kLearnable) sink = std::exp(test_.sink[head]);
    double denominator = sink;
    std::vector<double> p(static_cast<size_t>(span.key_length), 0), factor = p, grad_p = p, slope(p.size(), 1);
    const double cap = test_.options.soft_cap;
    for (int64_t j = 0; j < span.key_length; ++j) {
      if (!sees(span, i, j)) continue;
      double score = test_.options.scale * dot(q, &k_[static_cast<size_t>(key_row(j) * z.d)], z.d);
      if (cap > 0) {
        const double share = std::tanh(score / cap);
        score = cap * share;
        slope[static_cast<size_t>(j)] = 1 - share * share;
      }
      max_logits[static_cast<size_t>(head)] = std::max(max_logits[static_cast<size_t>(head)], score);
      p[static_cast<size_t>(j)] = std::exp(score);
      denominator += p[static_cast<size_t>(j)];
    }
    if (denominator == 0) return;
    lse[static_cast<size_t>((head * z.b + span.batch) * z.s + span.query_begin + i)] = std::log(denominator);
    double sum = 0;  // of p * grad_p
    for (int64_t j = 0; j < span.key_length; ++j) {
      const size_t e = static_cast<size_t>(j);
      p[e] /= denominator;
      factor[e] = dropout_factor(span, head, i, j);
      const int64_t v_row = key_row(j) * z.dv;
      grad_p[e] = factor[e] * dot(grad_o, &v_[static_cast<size_t>(v_row)], z.dv);
      sum += p[e] * grad_p[e];
      for (int64_t c = 0; c < z.dv; ++c) {
        o[static_cast<size_t>((row * z.n + head) * z.dv + c)] += p[e] * factor[e] * v_[static_cast<size_t>(v_row + c)];
        grad_v[static_cast<size_t>(v_row + c)] += p[e] * factor[e] * grad_o[c];
      }
    }
    for (int64_t j = 0; j < span.key_length; ++j) {
      const size_t e = static_cast<size_t>(j);
      const double grad_score = test_.options.scale * slope[e] * p[e] * (grad_p[e] - sum);
      for (int64_t c = 0; c < z.d; ++c) {
        grad_q[static_cast<size_t>((row * z.n + head) * z.d + c)] +=
            grad_score * k_[static_cast<size_t>(key_row(j) * z.d + c)];
        grad_k[static_cast<size_t>(key_row(j) * z.d + c)] += grad_score * q[c];
      }
    }
    grad_sink[static_cast<size_t>(head)] -= sink / denominator * sum;
  }

  const AttentionCase& test_;
  std::vector<double> q_, k_, v_, grad_o_;
};

}  // namespace megatron::kernels
