#include "megatron/core/context_layouts.h"

#include <algorithm>
#include <utility>

namespace megatron {
namespace {

struct Range {
  int64_t begin = 0, end = 0;
  bool is_empty() const { return begin >= end; }
};

Range intersection(const Range& a, const Range& b) { return {std::max(a.begin, b.begin), std::min(a.end, b.end)}; }

/// The tokens of a document that lie in a chunk that a rank holds.
struct ChunkPart {
  int64_t chunk = 0;  // number in the sequence
  Range tokens;       // positions in the sample
  int64_t row = 0;    // of the first token, on the rank
};

std::array<ChunkPart, 2> parts_of(const Range& document, const ContextCut& cut) {
  const int64_t length = cut.chunk_length();
  const auto part = [&](int64_t index) {
    const int64_t chunk = cut.chunks()[static_cast<size_t>(index)], begin = chunk * length;
    const Range tokens = intersection(document, {begin, begin + length});
    return ChunkPart{.chunk = chunk, .tokens = tokens, .row = index * length + tokens.begin - begin};
  };
  return {part(0), part(1)};
}

std::vector<Range> documents_of(const std::vector<int32_t>& cuts, int64_t length) {
  std::vector<Range> documents;
  int64_t begin = 0;
  for (const int32_t cut : cuts) {
    require<ShapeError>(cut >= begin && cut <= length, "[ContextLayouts] cuts of a column must ascend up to {}.",
                        length);
    if (cut > begin) documents.push_back({begin, cut});
    begin = cut;
  }
  if (begin < length) documents.push_back({begin, length});
  return documents;
}

/// f(column, document) for all documents of the batch.
template <class F>
void for_each_document(const SequenceTable& table, int64_t length, F&& f) {
  require<ShapeError>(std::ssize(table.cuts) == table.b, "[ContextLayouts] cuts of {} columns, there are {}.",
                      table.cuts.size(), table.b);
  for (int64_t column = 0; column < table.b; ++column)
    for (const Range& document : documents_of(table.cuts[static_cast<size_t>(column)], length))
      f(static_cast<int32_t>(column), document);
}

SequenceSpan span_of(int32_t column, const ChunkPart& queries, const Range& key_rows, int64_t query_offset,
                     int64_t first_key) {
  return {.batch = column,
          .query_begin = static_cast<int32_t>(queries.row),
          .query_length = static_cast<int32_t>(queries.tokens.end - queries.tokens.begin),
          .key_begin = static_cast<int32_t>(key_rows.begin),
          .key_length = static_cast<int32_t>(key_rows.end - key_rows.begin),
          .query_offset = static_cast<int32_t>(query_offset),
          .first_key = static_cast<int32_t>(first_key)};
}

SequenceLayout::Options rows_of(const SequenceTable& table, const ContextCut& cut) {
  return {.s = cut.num_rows(),
          .b = table.b,
          .first_sample = table.first_sample,
          .sequence_length = cut.length,
          .chunks = cut.positions()};
}

/// Keys of all ranks in the order of their positions: a query stands among them at its own position.
std::vector<SequenceSpan> spans_of_all_keys(const SequenceTable& table, const ContextCut& cut) {
  std::vector<SequenceSpan> spans;
  for_each_document(table, cut.length, [&](int32_t column, const Range& document) {
    for (const ChunkPart& queries : parts_of(document, cut))
      if (!queries.tokens.is_empty())
        spans.push_back(span_of(column, queries, document, queries.tokens.begin - document.begin, 0));
  });
  return spans;
}

/// Which of the two chunks of a rank's keys a call takes: [first, end).
struct KeyChunks {
  size_t first = 0, end = 2;
};

/// Adds a span, or lengthens the last one by it: both chunks of a document may be one span, so that a rank's own keys
/// of whole sequences are what causal attention of libraries knows.
void add_span(const SequenceSpan& span, std::vector<SequenceSpan>& spans) {
  if (!spans.empty()) {
    SequenceSpan& last = spans.back();
    const int32_t end = last.query_offset + last.query_length;
    if (span.batch == last.batch && span.query_begin == last.query_begin + last.query_length &&
        span.key_begin == last.key_begin && span.query_offset == end && span.first_key == last.first_key &&
        (span.key_length == last.key_length || end <= last.key_length)) {
      last.query_length += span.query_length;
      last.key_length = span.key_length;
      return;
    }
  }
  spans.push_back(span);
}

/// The keys of `owner` that the queries of `own` see: all of earlier chunks, and those before them of the same one.
std::vector<SequenceSpan> spans_of_ring_step(const SequenceTable& table, const ContextCut& own, const ContextCut& owner,
                                             const KeyChunks& chunks) {
  std::vector<SequenceSpan> spans;
  for_each_document(table, own.length, [&](int32_t column, const Range& document) {
    const std::array<ChunkPart, 2> all_keys = parts_of(document, owner);
    for (const ChunkPart& queries : parts_of(document, own)) {
      if (queries.tokens.is_empty()) continue;
      Range rows;
      int64_t first_key = 0;
      bool has_own_chunk = false;
      for (size_t i = chunks.first; i < chunks.end; ++i) {
        const ChunkPart& keys = all_keys[i];
        if (keys.tokens.is_empty() || keys.chunk > queries.chunk) continue;
        if (rows.is_empty()) rows.begin = keys.row, first_key = keys.tokens.begin - document.begin;
        rows.end = keys.row + keys.tokens.end - keys.tokens.begin;
        has_own_chunk |= keys.chunk == queries.chunk;
      }
      if (rows.is_empty()) continue;
      // Behind the last key where all of them are visible, and further along with the queries.
      const int64_t offset = has_own_chunk ? queries.row - rows.begin : rows.end - rows.begin + queries.row;
      add_span(span_of(column, queries, rows, offset, first_key), spans);
    }
  });
  return spans;
}

RingLayouts ring_layouts(const Context& ctx, const SequenceTable& table, const ContextLayoutOptions& options,
                         int64_t num_head_ranks) {
  const ContextCut& cut = options.cut;
  require<ShapeError>(num_head_ranks >= 1 && cut.size % num_head_ranks == 0,
                      "[ContextLayouts] {} ranks that share heads do not divide {} context-parallel ranks.",
                      num_head_ranks, cut.size);
  RingLayouts ring{.num_head_ranks = num_head_ranks,
                   .cut = {.rank = cut.rank / num_head_ranks, .size = cut.size / num_head_ranks, .length = cut.length},
                   .steps = {}};
  if (ring.cut.size == 1) {
    const SequenceLayout::Options whole{
        .s = cut.length, .b = table.b, .first_sample = table.first_sample, .sequence_length = cut.length};
    ring.steps.push_back({SequenceLayout::cut_at(ctx, whole, table.cuts, {})});
    return ring;
  }
  std::vector<KeyChunks> calls{{0, 2}};
  if (options.splits_keys) calls = {{0, 1}, {1, 2}};
  for (int64_t step = 0; step < ring.cut.size; ++step) {
    ContextCut owner = ring.cut;
    owner.rank = (ring.cut.rank - step + ring.cut.size) % ring.cut.size;
    std::vector<SequenceLayout>& layouts = ring.steps.emplace_back();
    for (const KeyChunks& chunks : calls) {
      const std::vector<SequenceSpan> spans = spans_of_ring_step(table, ring.cut, owner, chunks);
      if (!spans.empty()) layouts.push_back(SequenceLayout::from_spans(ctx, rows_of(table, ring.cut), spans, {}));
    }
  }
  return ring;
}

std::vector<int32_t> positions_of(const SequenceTable& table, const ContextCut& cut) {
  std::vector<int32_t> positions;
  for (int64_t row = 0; row < cut.num_rows(); ++row)
    for (int64_t column = 0; column < table.b; ++column) {
      const int64_t position = cut.positions().position(row);
      positions.push_back(table.positions.empty()
                              ? static_cast<int32_t>(position)
                              : table.positions.at(static_cast<size_t>(position * table.b + column)));
    }
  return positions;
}

}  // namespace

void ContextCut::check() const {
  require<ShapeError>(rank >= 0 && rank < size, "[ContextCut] there is no rank {} of {}.", rank, size);
  require<ShapeError>(
      length % (2 * size) == 0,
      "[ContextCut] sequences of {} tokens are not divisible by 2 * {} context-parallel ranks: each holds "
      "two chunks. Choose another --seq-length or --context-parallel-size.",
      length, size);
}

ContextChunks ContextCut::positions() const {
  if (size == 1) return {};
  return {.length = chunk_length(), .first = chunks()[0] * chunk_length(), .second = chunks()[1] * chunk_length()};
}

const RingLayouts& ContextLayouts::ring(int64_t num_head_ranks) const {
  const auto found = std::ranges::find(rings, num_head_ranks, &RingLayouts::num_head_ranks);
  require(found != rings.end(), "[ContextLayouts] there are no layouts for {} ranks that share heads.", num_head_ranks);
  return *found;
}

void SequenceLayout::set_context(ContextLayouts layouts) {
  context_ = std::make_shared<const ContextLayouts>(std::move(layouts));
}

SequenceLayout context_parallel_layout(const Context& ctx, const SequenceTable& table,
                                       const ContextLayoutOptions& options) {
  const ContextCut& cut = options.cut;
  cut.check();
  SequenceLayout layout =
      SequenceLayout::from_spans(ctx, rows_of(table, cut), spans_of_all_keys(table, cut), positions_of(table, cut));
  ContextLayouts context{.cut = cut, .rings = {}};
  for (const int64_t num_head_ranks : options.num_head_ranks)
    context.rings.push_back(ring_layouts(ctx, table, options, num_head_ranks));
  layout.set_context(std::move(context));
  return layout;
}

}  // namespace megatron
