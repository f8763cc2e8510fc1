#include "megatron/core/sequence_layout.h"

#include <algorithm>
#include <span>

#include "megatron/core/copy.h"

namespace megatron {
namespace {
/// A small table of the host in device memory, which has room for `capacity` entries if they are fewer. Undefined if
/// there is nothing to hold.
template <class T>
Tensor upload(const Context& ctx, std::string_view name, const std::vector<T>& table, int64_t capacity = 0) {
  const int64_t bytes = std::max(std::ssize(table), capacity) * static_cast<int64_t>(sizeof(T));
  if (bytes == 0) return {};
  Tensor tensor = ctx.empty(name, {bytes}, DType::kUInt8, MemoryUse::kData);
  if (!table.empty()) copy_from_host(ctx.device, std::as_bytes(std::span(table)), tensor.data<uint8_t>());
  return tensor;
}

/// Ranges of rows of columns, in the order in which they are added.
class DisjointRows {
 public:
  explicit DisjointRows(int64_t b) : ends_(static_cast<size_t>(b), 0) {}
  /// @return whether the range begins behind those of its column so far.
  bool add(int32_t column, int32_t begin, int32_t length) {
    int32_t& end = ends_[static_cast<size_t>(column)];
    const bool is_behind = begin >= end;
    end = begin + length;
    return is_behind;
  }

 private:
  std::vector<int32_t> ends_;
};

SpanForm form_of(const std::vector<SequenceSpan>& spans, int64_t s, int64_t b) {
  DisjointRows queries(b), keys(b);
  bool is_uniform = std::ssize(spans) == b, is_packed = true, sees_all = true, ends_aligned = true;
  for (size_t i = 0; i < spans.size(); ++i) {
    const SequenceSpan& span = spans[i];
    if (!queries.add(span.batch, span.query_begin, span.query_length) ||
        !keys.add(span.batch, span.key_begin, span.key_length))
      return SpanForm::kAny;
    is_packed &= span.key_begin == span.query_begin && span.key_length == span.query_length && span.query_offset == 0;
    sees_all &= span.query_offset >= span.key_length - 1;
    ends_aligned &= span.query_offset >= 0 && span.query_offset + span.query_length == span.key_length;
    is_uniform &= span.batch == static_cast<int32_t>(i) && span.query_length == s;
  }
  if (is_packed) return is_uniform ? SpanForm::kUniform : SpanForm::kPacked;
  if (ends_aligned) return SpanForm::kEndsAligned;
  return sees_all ? SpanForm::kAllVisible : SpanForm::kAny;
}
}  // namespace

SequenceLayout SequenceLayout::uniform(const Context& ctx, const Options& options) {
  const auto s = static_cast<int32_t>(options.s), past = static_cast<int32_t>(options.first_position);
  std::vector<SequenceSpan> spans;
  spans.reserve(static_cast<size_t>(options.b));
  for (int32_t column = 0; column < options.b; ++column)
    spans.push_back({.batch = column,
                     .query_begin = 0,
                     .query_length = s,
                     .key_begin = 0,
                     .key_length = past + s,
                     .query_offset = past});
  return from_spans(ctx, options, spans, {});
}

SequenceLayout SequenceLayout::from_spans(const Context& ctx, const Options& options,
                                          const std::vector<SequenceSpan>& spans,
                                          const std::vector<int32_t>& positions) {
  require<ShapeError>(positions.empty() || static_cast<int64_t>(positions.size()) == options.s * options.b,
                      "[SequenceLayout] {} positions for {} rows in {} columns.", positions.size(), options.s,
                      options.b);
  require<ShapeError>(options.span_capacity == 0 || std::ssize(spans) <= options.span_capacity,
                      "[SequenceLayout] {} spans exceed the capacity of {}.", spans.size(), options.span_capacity);
  SequenceLayout layout;
  layout.spans_ = upload(ctx, "layout.spans", spans, options.span_capacity);
  layout.sample_positions_ = options.sample_positions;
  layout.positions_ = upload(ctx, "layout.positions", positions);
  const auto data = [](const Tensor& t) { return t.defined() ? t.data<uint8_t>() : nullptr; };
  layout.view_ = {
      .s = options.s,
      .b = options.b,
      .spans = reinterpret_cast<const SequenceSpan*>(data(layout.spans_)),
      .num_spans = static_cast<int64_t>(spans.size()),
      .form = SpanForm::kAny,
      .positions = reinterpret_cast<const int32_t*>(data(layout.positions_)),
      .first_position = options.first_position,
      .rows = {.first_sample = options.first_sample,
               .sequence_length = options.sequence_length > 0 ? options.sequence_length : options.s,
               .first_position = options.first_position,
               .b = options.b,
               .list = nullptr,
               .positions = options.sample_positions.defined() ? options.sample_positions.data<int32_t>() : nullptr}};
  layout.num_positions_ = options.first_position + options.s;
  if (!positions.empty()) {
    const auto [least, largest] = std::minmax_element(positions.begin(), positions.end());
    require<ShapeError>(*least >= 0, "[SequenceLayout] position {} is negative.", *least);
    layout.num_positions_ = int64_t{*largest} + 1;
  }
  for (const SequenceSpan& span : spans) {
    require<ShapeError>(span.batch >= 0 && span.batch < options.b && span.query_begin >= 0 && span.query_length >= 0 &&
                            span.query_begin + span.query_length <= options.s,
                        "[SequenceLayout] a span of rows {}..{} in column {} lies outside of {} rows in {} columns.",
                        span.query_begin, span.query_begin + span.query_length, span.batch, options.s, options.b);
    require<ShapeError>(span.key_begin >= 0 && span.key_length >= 0,
                        "[SequenceLayout] a span of {} keys from {} on: numbers are negative.", span.key_length,
                        span.key_begin);
    layout.num_keys_ = std::max<int64_t>(layout.num_keys_, int64_t{span.key_begin} + span.key_length);
    layout.extents_.push_back({span.query_length, span.key_length, span.query_offset});
  }
  layout.view_.form = form_of(spans, options.s, options.b);
  return layout;
}

int64_t SequenceLayout::num_visible_pairs(int64_t window_left, int64_t window_right) const {
  int64_t sum = 0;
  for (const auto& [num_queries, num_keys, begin] : extents_) {
    const int64_t end = begin + num_queries;  // key indices at which queries stand: [begin, end)
    const int64_t left = window_left < 0 ? end : window_left, right = window_right < 0 ? num_keys : window_right;
    // The queries at [0, n) see the keys before their own index: 0 + 1 + ..., at most all keys.
    const auto keys_before = [k = num_keys](int64_t n) {
      const int64_t num_growing = std::clamp<int64_t>(n, 0, k + 1);
      return num_growing * (num_growing - 1) / 2 + (std::max(n, num_growing) - num_growing) * k;
    };
    sum += keys_before(end + right + 1) - keys_before(begin + right + 1);  // up to the last one seen
    sum -= keys_before(end - left) - keys_before(begin - left);            // those before the first one seen
  }
  return sum;
}

SequenceLayout SequenceLayout::cut_at(const Context& ctx, const Options& options,
                                      const std::vector<std::vector<int32_t>>& cuts,
                                      const std::vector<int32_t>& positions) {
  require<ShapeError>(static_cast<int64_t>(cuts.size()) == options.b,
                      "[SequenceLayout] cuts of {} columns, there are {}.", cuts.size(), options.b);
  std::vector<SequenceSpan> spans;
  for (int32_t column = 0; column < options.b; ++column) {
    std::vector<int32_t> borders = cuts[static_cast<size_t>(column)];
    borders.push_back(static_cast<int32_t>(options.s));
    int32_t begin = 0;
    for (int32_t end : borders) {
      require<ShapeError>(end >= begin && end <= options.s, "[SequenceLayout] cuts of column {} must ascend up to {}.",
                          column, options.s);
      if (end == begin) continue;
      spans.push_back({.batch = column,
                       .query_begin = begin,
                       .query_length = end - begin,
                       .key_begin = begin,
                       .key_length = end - begin,
                       .query_offset = 0});
      begin = end;
    }
  }
  return from_spans(ctx, options, spans, positions);
}

}  // namespace megatron
