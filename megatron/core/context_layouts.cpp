#include "megatron/core/context_layouts.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <utility>

#include "megatron/core/copy.h"

namespace megatron {
namespace {

/// A sample's documents, and the units that are cut over the ranks: see ContextCut.
struct Sample {
  std::vector<PositionRange> documents, units;
};

/// The sequences of a batch, and the positions of the rank's rows in their samples.
struct Samples {
  const SequenceTable& table;
  int64_t length = 0;
  int64_t max_documents = 0;
  std::vector<Sample> columns;

  Samples(const SequenceTable& sequences, const ContextLayoutOptions& options)
      : table(sequences), length(options.cut.length), max_documents(options.max_documents) {
    require<ShapeError>(std::ssize(table.cuts) == table.b, "[ContextLayouts] cuts of {} columns, there are {}.",
                        table.cuts.size(), table.b);
    for (const std::vector<int32_t>& cuts : table.cuts)
      columns.push_back({documents_of(cuts, length), options.cut.units_of(cuts)});
  }
  /// Room for that many spans of each document.
  int64_t span_capacity(int64_t spans_of_document) const { return table.b * max_documents * spans_of_document; }
  int64_t sample_length() const { return table.sample_length > 0 ? table.sample_length : length; }
  /// [rows, b] of the rank of a cut, in row-major order.
  std::vector<int32_t> positions_of(const ContextCut& cut) const;
};

std::vector<int32_t> Samples::positions_of(const ContextCut& cut) const {
  std::vector<int32_t> positions(static_cast<size_t>(cut.num_rows() * table.b));
  for (int64_t column = 0; column < table.b; ++column) {
    int64_t row = 0;
    for (const PositionRange& run : cut.runs_of(columns[static_cast<size_t>(column)].units))
      for (int64_t position = run.begin; position < run.end; ++position)
        positions[static_cast<size_t>(row++ * table.b + column)] = static_cast<int32_t>(position);
  }
  return positions;
}

/// A document and the unit that it lies in.
struct CutDocument {
  PositionRange tokens, unit;
};

/// f(column, document) for all documents of the batch.
template <class F>
void for_each_document(const Samples& samples, F&& f) {
  for (size_t column = 0; column < samples.columns.size(); ++column) {
    const auto& [documents, units] = samples.columns[column];
    auto unit = units.begin();
    for (const PositionRange& document : documents) {
      while (unit->end <= document.begin) ++unit;
      f(static_cast<int32_t>(column), CutDocument{document, *unit});
    }
  }
}

/// The tokens of a document that lie in a chunk that a rank holds.
struct ChunkPart {
  int64_t chunk = 0;     // number in the unit
  PositionRange tokens;  // positions in the sample
  int64_t row = 0;       // of the first token, on the rank
};

std::array<ChunkPart, 2> parts_of(const CutDocument& document, const ContextCut& cut) {
  const int64_t length = document.unit.size() / (2 * cut.size), first_row = document.unit.begin / cut.size;
  const auto part = [&](int64_t index) {
    const int64_t chunk = cut.chunks()[static_cast<size_t>(index)], begin = document.unit.begin + chunk * length;
    const PositionRange tokens{std::max(document.tokens.begin, begin), std::min(document.tokens.end, begin + length)};
    return ChunkPart{.chunk = chunk, .tokens = tokens, .row = first_row + index * length + tokens.begin - begin};
  };
  return {part(0), part(1)};
}

SequenceSpan span_of(int32_t column, const ChunkPart& queries, const PositionRange& key_rows, int64_t query_offset,
                     int64_t first_key) {
  return {.batch = column,
          .query_begin = static_cast<int32_t>(queries.row),
          .query_length = static_cast<int32_t>(queries.tokens.end - queries.tokens.begin),
          .key_begin = static_cast<int32_t>(key_rows.begin),
          .key_length = static_cast<int32_t>(key_rows.end - key_rows.begin),
          .query_offset = static_cast<int32_t>(query_offset),
          .first_key = static_cast<int32_t>(first_key)};
}

/// Returns the options of the rows of a cut, whose sample positions are in device memory.
SequenceLayout::Options rows_of(const Samples& samples, const ContextCut& cut, const Tensor& sample_positions) {
  return {.s = cut.num_rows(),
          .b = samples.table.b,
          .first_sample = samples.table.first_sample,
          .sequence_length = samples.sample_length(),
          .sample_positions = sample_positions,
          .span_capacity = samples.span_capacity(2)};
}

Tensor upload_table(const Context& ctx, std::string_view name, const std::vector<int32_t>& values) {
  Tensor x = ctx.empty(name, {std::ssize(values)}, DType::kInt32, MemoryUse::kData);
  write_values(ctx.device, std::span(values), x);
  return x;
}

Tensor upload_sample_positions(const Context& ctx, const Samples& samples, const ContextCut& cut) {
  std::vector<int32_t> positions = samples.positions_of(cut);
  for (int32_t& position : positions) position += static_cast<int32_t>(samples.table.first_position);
  return upload_table(ctx, "layout.sample_positions", positions);
}

/// Returns the order of the rows of `cut`'s ranks that form rank `cut.rank / num_ranks` of a coarser one.
RowOrder row_order(const Context& ctx, const Samples& samples, ContextCut cut, int64_t num_ranks) {
  if (num_ranks == 1) return {};
  const int64_t b = samples.table.b;
  std::vector<int32_t> positions;  // of the gathered rows [num_ranks * rows, b]
  const int64_t first = cut.rank / num_ranks * num_ranks;
  for (cut.rank = first; cut.rank < first + num_ranks; ++cut.rank)
    std::ranges::copy(samples.positions_of(cut), std::back_inserter(positions));
  std::vector<int32_t> to_positions(positions.size()), to_ranks(positions.size());
  std::vector<int32_t> rows(positions.size() / static_cast<size_t>(b));  // of a column, by position
  for (int64_t column = 0; column < b; ++column) {
    const auto place = [&](int64_t row) { return static_cast<size_t>(row * b + column); };
    std::iota(rows.begin(), rows.end(), 0);
    std::ranges::sort(rows, {}, [&](int32_t row) { return positions[place(row)]; });
    for (size_t i = 0; i < rows.size(); ++i)
      to_positions[place(static_cast<int64_t>(i))] = static_cast<int32_t>(place(rows[i]));
  }
  for (size_t i = 0; i < to_ranks.size(); ++i) to_ranks[static_cast<size_t>(to_positions[i])] = static_cast<int32_t>(i);
  return {num_ranks, upload_table(ctx, "layout.to_positions", to_positions),
          upload_table(ctx, "layout.to_ranks", to_ranks)};
}

/// The chunks, of the two that a rank holds, that a call takes: [first, end).
struct Chunks {
  size_t first = 0, end = 2;
};

/// Keys of all ranks in the order of their positions: a query stands among them at its own position.
std::vector<SequenceSpan> spans_of_all_keys(const Samples& samples, const ContextCut& cut, const Chunks& chunks = {}) {
  std::vector<SequenceSpan> spans;
  for_each_document(samples, [&](int32_t column, const CutDocument& document) {
    const std::array<ChunkPart, 2> parts = parts_of(document, cut);
    for (size_t i = chunks.first; i < chunks.end; ++i) {
      const ChunkPart& queries = parts[i];
      if (queries.tokens.is_empty()) continue;
      const PositionRange visible{document.tokens.begin, queries.tokens.end};
      spans.push_back(span_of(column, queries, visible, queries.tokens.begin - visible.begin, 0));
    }
  });
  return spans;
}

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
std::vector<SequenceSpan> spans_of_ring_step(const Samples& samples, const ContextCut& own, const ContextCut& owner,
                                             const Chunks& chunks) {
  std::vector<SequenceSpan> spans;
  for_each_document(samples, [&](int32_t column, const CutDocument& document) {
    const std::array<ChunkPart, 2> all_keys = parts_of(document, owner);
    for (const ChunkPart& queries : parts_of(document, own)) {
      if (queries.tokens.is_empty()) continue;
      PositionRange rows;
      int64_t first_key = 0;
      bool has_own_chunk = false;
      for (size_t i = chunks.first; i < chunks.end; ++i) {
        const ChunkPart& keys = all_keys[i];
        if (keys.tokens.is_empty() || keys.chunk > queries.chunk) continue;
        if (rows.is_empty()) rows.begin = keys.row, first_key = keys.tokens.begin - document.tokens.begin;
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

RingLayouts ring_layouts(const Context& ctx, const Samples& samples, const ContextLayoutOptions& options,
                         int64_t num_head_ranks) {
  const ContextCut& cut = options.cut;
  require<ShapeError>(num_head_ranks >= 1 && cut.size % num_head_ranks == 0,
                      "[ContextLayouts] {} ranks that share heads do not divide {} context-parallel ranks.",
                      num_head_ranks, cut.size);
  RingLayouts ring{.head_ranks = row_order(ctx, samples, cut, num_head_ranks),
                   .cut = {.rank = cut.rank / num_head_ranks, .size = cut.size / num_head_ranks, .length = cut.length},
                   .steps = {}};
  if (ring.cut.size == 1) {
    const SequenceLayout::Options whole{.s = cut.length,
                                        .b = samples.table.b,
                                        .first_sample = samples.table.first_sample,
                                        .sequence_length = samples.sample_length(),
                                        .first_position = samples.table.first_position,
                                        .span_capacity = samples.span_capacity(1)};
    ring.steps.push_back({SequenceLayout::cut_at(ctx, whole, samples.table.cuts, {})});
    return ring;
  }
  const SequenceLayout::Options rows = rows_of(samples, ring.cut, upload_sample_positions(ctx, samples, ring.cut));
  std::vector<Chunks> calls{{0, 2}};
  if (options.splits_keys) calls = {{0, 1}, {1, 2}};
  for (int64_t step = 0; step < ring.cut.size; ++step) {
    ContextCut owner = ring.cut;
    owner.rank = (ring.cut.rank - step + ring.cut.size) % ring.cut.size;
    std::vector<SequenceLayout>& layouts = ring.steps.emplace_back();
    for (const Chunks& chunks : calls) {
      const std::vector<SequenceSpan> spans = spans_of_ring_step(samples, ring.cut, owner, chunks);
      if (!spans.empty()) layouts.push_back(SequenceLayout::from_spans(ctx, rows, spans, {}));
    }
  }
  return ring;
}

/// For embeddings: those of the table, or in the sample.
std::vector<int32_t> embedding_positions(const Samples& samples, const ContextCut& cut) {
  const SequenceTable& table = samples.table;
  std::vector<int32_t> positions = samples.positions_of(cut);
  if (table.positions.empty()) return positions;
  for (size_t i = 0; i < positions.size(); ++i)
    positions[i] = table.positions.at(static_cast<size_t>(positions[i] * table.b) + i % static_cast<size_t>(table.b));
  return positions;
}

}  // namespace

const RingLayouts& ContextLayouts::ring(int64_t num_head_ranks) const {
  const auto found =
      std::ranges::find(rings, num_head_ranks, [](const RingLayouts& ring) { return ring.head_ranks.num_ranks; });
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
  const Samples samples(table, options);
  const SequenceLayout::Options rows = rows_of(samples, cut, upload_sample_positions(ctx, samples, cut));
  SequenceLayout layout =
      SequenceLayout::from_spans(ctx, rows, spans_of_all_keys(samples, cut), embedding_positions(samples, cut));
  ContextLayouts context{.cut = cut,
                         .all_ranks = row_order(ctx, samples, cut, options.gathers_keys ? cut.size : 1),
                         .all_keys = {},
                         .rings = {}};
  if (options.gathers_keys)
    for (const Chunks& chunks : {Chunks{0, 1}, Chunks{1, 2}})
      context.all_keys.push_back(SequenceLayout::from_spans(ctx, rows, spans_of_all_keys(samples, cut, chunks), {}));
  for (const int64_t num_head_ranks : options.num_head_ranks)
    context.rings.push_back(ring_layouts(ctx, samples, options, num_head_ranks));
  layout.set_context(std::move(context));
  return layout;
}

}  // namespace megatron
