#include "megatron/kernels/cpu/attention_inputs.h"

#include <cstring>
#include <limits>

namespace megatron::kernels {
namespace {
/// Larger than any distance between two positions, and far from overflow.
constexpr int64_t kUnlimited = int64_t{1} << 40;

double sink_logit(AttentionSoftmax softmax, const ConstView& sink, int64_t head) {
  if (softmax == AttentionSoftmax::kVanilla) return -std::numeric_limits<double>::infinity();
  if (softmax == AttentionSoftmax::kOffByOne) return 0;
  return dispatch_floating(sink.dtype, [&]<class T>() { return static_cast<double>(sink.as<T>()[head]); });
}

TileDropout tile_dropout(const AttentionOptions& options, int64_t head, int64_t first_key, const int64_t* rows) {
  if (options.dropout <= 0) return {};
  return {.threshold = dropout_threshold(options.dropout),
          .key = options.dropout_key.at(options.first_head + head).value,
          .step = options.state->step,
          .first_key = first_key,
          .rows = rows,
          .kept_scale = 1 / (1 - options.dropout)};
}
}  // namespace

void AttentionInputs::check(const ConstView& o) const {
  const int64_t s_k = k.shape[0], g = k.shape[2];
  require<ShapeError>(g > 0 && n() % g == 0 && k.shape == Shape{s_k, b(), g, d()} &&
                          v.shape == Shape{s_k, b(), g, dv()} && o.shape == Shape{s(), b(), n(), dv()},
                      "[attention] q {}, k {}, v {} and o {} are not [s, b, n, d], [s_k, b, g, d], [s_k, b, g, dv] and "
                      "[s, b, n, dv] with n a multiple of g.",
                      q.shape, k.shape, v.shape, o.shape);
  require<DtypeError>(is_floating(q.dtype) && k.dtype == q.dtype && v.dtype == q.dtype && o.dtype == q.dtype,
                      "[attention] q {}, k {}, v {} and o {} must be of one floating dtype.", q.dtype, k.dtype, v.dtype,
                      o.dtype);
}

template <class C>
void AttentionInputs::set_tile(const SequenceSpan& span, int64_t head, int64_t first, int64_t* rows,
                               AttentionTile& tile) const {
  const int64_t row = span.query_begin + first, group = head / heads_per_group();
  tile.q = head_rows<TileRows>(q, row, span.batch, head);
  tile.k = head_rows<TileRows>(k, span.key_begin, span.batch, group);
  tile.v = head_rows<TileRows>(v, span.key_begin, span.batch, group);
  tile.num_queries = std::min<int64_t>(kQueryTile<C>, span.query_length - first);
  tile.num_keys = span.key_length;
  tile.d = d();
  tile.dv = dv();
  tile.position = span.query_offset + first;
  tile.left = options.window_left < 0 ? kUnlimited : options.window_left;
  tile.right = options.window_right < 0 ? kUnlimited : options.window_right;
  if (options.is_causal) tile.right = 0;
  tile.scale = options.scale;
  tile.soft_cap = options.soft_cap;
  tile.sink = sink_logit(options.softmax, sink, head);
  tile.dropout = tile_dropout(options, head, span.first_key, rows);
  if (tile.dropout.threshold == 0) return;
  std::fill_n(rows, kQueryTile<C>, int64_t{0});
  for (int64_t i = 0; i < tile.num_queries; ++i) rows[i] = layout.rows((row + i) * b() + span.batch);
}
template void AttentionInputs::set_tile<float>(const SequenceSpan&, int64_t, int64_t, int64_t*, AttentionTile&) const;
template void AttentionInputs::set_tile<double>(const SequenceSpan&, int64_t, int64_t, int64_t*, AttentionTile&) const;

bool AttentionInputs::has_uncovered_rows(int64_t column) const {
  int64_t covered = 0;
  for (int64_t i = 0; i < layout.num_spans; ++i)
    if (layout.spans[i].batch == column) covered += layout.spans[i].query_length;
  return covered < s();
}

int64_t AttentionInputs::num_pairs() const {
  int64_t pairs = 0;
  for (int64_t i = 0; i < layout.num_spans; ++i)
    pairs += int64_t{layout.spans[i].query_length} * layout.spans[i].key_length;
  return pairs * n();
}

void zero_rows(const View& x, int64_t column, int64_t head) {
  const TileTarget rows = head_rows<TileTarget>(x, 0, column, head);
  for (int64_t r = 0; r < x.shape[0]; ++r)
    std::memset(static_cast<char*>(rows.data) + r * rows.stride * size_of(x.dtype), 0, x.shape[3] * size_of(x.dtype));
}

}  // namespace megatron::kernels
