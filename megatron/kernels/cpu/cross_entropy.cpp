#include "megatron/kernels/cross_entropy.h"

#include <cmath>

#include "megatron/kernels/cpu/per_row.h"
#include "megatron/kernels/cpu/simd.h"
#include "megatron/kernels/cpu/vector_math.h"

namespace megatron::kernels {
namespace {
/// Logits of real tokens, without the padded columns.
template <class C>
class TokenLogits {
 public:
  TokenLogits(const ConstView& logits, const VocabularyColumns& columns)
      : num_rows_(logits.num_rows()),
        num_columns_(std::clamp<int64_t>(columns.vocab_size - columns.first_id, 0, logits.shape[-1])),
        first_id_(columns.first_id),
        rows_(logits) {}
  int64_t num_rows() const { return num_rows_; }
  int64_t num_columns() const { return num_columns_; }
  /// Column of a token, -1 if it is not among these.
  int64_t column_of(int64_t id) const { return id >= first_id_ && id < first_id_ + num_columns_ ? id - first_id_ : -1; }
  C at(int64_t row, int64_t column) const {
    C buffer;
    return *rows_.read(row, column, 1, &buffer);
  }
  const C* read(int64_t row, int64_t begin, int64_t n, C* buffer) const { return rows_.read(row, begin, n, buffer); }

  C max(int64_t row) const {
    C largest = -std::numeric_limits<C>::infinity();
    for_each_piece(num_columns_, [&](int64_t begin, int64_t n) {
      Piece<C> buffer;
      const C* x = read(row, begin, n, buffer);
      largest = std::max(largest, simd_max<C>(n, [=](int64_t i) { return x[i]; }));
    });
    return largest;
  }
  /// Pieces are added in fp64, because a vocabulary is large.
  C sum_exp(int64_t row, C max) const {
    return sum(row, [=](C x) { return decaying_exponential(x - max); });
  }
  C sum_differences(int64_t row, C max) const {
    return sum(row, [=](C x) { return x - max; });
  }

 private:
  template <class F>
  C sum(int64_t row, F f) const {
    double total = 0;
    for_each_piece(num_columns_, [&](int64_t begin, int64_t n) {
      Piece<C> buffer;
      const C* x = read(row, begin, n, buffer);
      total += static_cast<double>(simd_sum<C>(n, [=](int64_t i) { return f(x[i]); }));
    });
    return static_cast<C>(total);
  }

  int64_t num_rows_, num_columns_, first_id_;
  RowReader<C> rows_;
};

/// The loss from the sums of a row over the whole vocabulary.
template <class C>
C loss_of(C sum_exp, C target, C total, double label_smoothing, int64_t vocab_size) {
  const double smooth = label_smoothing * static_cast<double>(total) / static_cast<double>(vocab_size);
  return static_cast<C>(std::log(static_cast<double>(sum_exp)) - (1 - label_smoothing) * static_cast<double>(target) -
                        smooth);
}

template <class Body>
void for_rows(const CpuStream& stream, int64_t num_rows, int64_t elements, Body&& body) {
  parallel_for(stream, num_rows, elements, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) body(row);
  });
}

template <class C>
void sums(const CpuStream& stream, const CrossEntropySumsArgs& args) {
  const TokenLogits<C> logits(args.logits, args.columns);
  const IndexReader targets(args.targets);
  const C* max = args.max.as<C>();
  C *sum_exp = args.sum_exp.as<C>(), *target = args.target.as<C>();
  C* total = args.total.defined() ? args.total.as<C>() : nullptr;
  for_rows(stream, logits.num_rows(), logits.num_columns(), [&](int64_t row) {
    const int64_t column = logits.column_of(targets[row]);
    sum_exp[row] = logits.sum_exp(row, max[row]);
    target[row] = column < 0 ? C(0) : logits.at(row, column) - max[row];
    if (total) total[row] = logits.sum_differences(row, max[row]);
  });
}

template <class C>
void loss(const CpuStream& stream, const CrossEntropyLossArgs& args) {
  const C *sum_exp = args.sum_exp.as<C>(), *target = args.target.as<C>();
  const C* total = args.label_smoothing != 0 ? args.total.as<C>() : nullptr;
  const ScalarReader mask(args.loss_mask);
  C* out = args.loss.as<C>();
  for_rows(stream, args.loss.num_elements(), 8, [&](int64_t row) {
    const double weight = mask ? mask[row] : 1;
    const C value =
        loss_of(sum_exp[row], target[row], total ? total[row] : C(0), args.label_smoothing, args.vocab_size);
    out[row] = weight == 0 ? C(0) : static_cast<C>(weight * static_cast<double>(value));
  });
}

template <class C>
void forward(const CpuStream& stream, const CrossEntropyForwardArgs& args) {
  const TokenLogits<C> logits(args.logits, args.columns);
  const IndexReader targets(args.targets);
  const ScalarReader mask(args.loss_mask);
  C *maxima = args.max.as<C>(), *sum_exp = args.sum_exp.as<C>(), *out = args.loss.as<C>();
  for_rows(stream, logits.num_rows(), logits.num_columns(), [&](int64_t row) {
    const double weight = mask ? mask[row] : 1;
    const C max = maxima[row] = logits.max(row);
    sum_exp[row] = logits.sum_exp(row, max);
    const int64_t column = logits.column_of(targets[row]);
    const C target = column < 0 ? C(0) : logits.at(row, column) - max;
    const C total = args.label_smoothing != 0 ? logits.sum_differences(row, max) : C(0);
    const C value = loss_of(sum_exp[row], target, total, args.label_smoothing, args.columns.vocab_size);
    out[row] = weight == 0 ? C(0) : static_cast<C>(weight * static_cast<double>(value));
  });
}

template <class C>
void backward(const CpuStream& stream, const CrossEntropyBackwardArgs& args) {
  const int64_t v = args.logits.shape[-1];
  const TokenLogits<C> logits(args.logits, args.columns);
  const RowWriter<C> d_logits(args.d_logits);
  const IndexReader targets(args.targets);
  const ScalarReader mask(args.loss_mask), d_loss(args.d_loss);
  const C *maxima = args.max.as<C>(), *sum_exp = args.sum_exp.as<C>();
  const C smooth = static_cast<C>(args.label_smoothing / static_cast<double>(args.columns.vocab_size));
  for_rows(stream, logits.num_rows(), v, [&](int64_t row) {
    const double factor = d_loss[row] * (mask ? mask[row] : 1);
    const int64_t target = logits.column_of(targets[row]), num_tokens = factor == 0 ? 0 : logits.num_columns();
    const C max = maxima[row], scale = static_cast<C>(factor), inverse = C(1) / sum_exp[row];
    const C at_target = static_cast<C>(factor * (1 - args.label_smoothing));
    for_each_piece(v, [&](int64_t begin, int64_t n) {
      Piece<C> buffer;
      const int64_t tokens = std::clamp<int64_t>(num_tokens - begin, 0, n);
      const C* x = logits.read(row, begin, tokens, buffer);
      C* out = d_logits.target(row, begin, buffer);
      simd_for(tokens, [=](int64_t i) { out[i] = scale * (decaying_exponential(x[i] - max) * inverse - smooth); });
      std::fill(out + tokens, out + n, C(0));
      if (target >= begin && target < begin + tokens) out[target - begin] -= at_target;
      d_logits.store(row, begin, n, out);
    });
  });
}
}  // namespace

void cross_entropy_max(const CpuStream& stream, const CrossEntropyMaxArgs& args) {
  dispatch_compute(args.logits.dtype, [&]<class C>() {
    const TokenLogits<C> logits(args.logits, args.columns);
    C* max = args.max.as<C>();
    for_rows(stream, logits.num_rows(), logits.num_columns(), [&](int64_t row) { max[row] = logits.max(row); });
  });
}
void cross_entropy_sums(const CpuStream& stream, const CrossEntropySumsArgs& args) {
  dispatch_compute(args.logits.dtype, [&]<class C>() { sums<C>(stream, args); });
}
void cross_entropy_loss(const CpuStream& stream, const CrossEntropyLossArgs& args) {
  dispatch_compute(args.loss.dtype, [&]<class C>() { loss<C>(stream, args); });
}
void cross_entropy_forward(const CpuStream& stream, const CrossEntropyForwardArgs& args) {
  dispatch_compute(args.logits.dtype, [&]<class C>() { forward<C>(stream, args); });
}
void cross_entropy_backward(const CpuStream& stream, const CrossEntropyBackwardArgs& args) {
  dispatch_compute(args.logits.dtype, [&]<class C>() { backward<C>(stream, args); });
}

}  // namespace megatron::kernels
