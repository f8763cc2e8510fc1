// Attention that context-parallel ranks share is that of one rank: results and gradients, for each way of sharing.
#include "megatron/context_parallel/context_attention.h"

#include <gtest/gtest.h>

#include <mutex>

#include "megatron/core/context_layouts.h"
#include "tests/testing/finite_difference.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

struct Problem {
  int64_t s = 12, b = 2, n = 4, g = 2, d = 6, dv = 6;
  std::vector<std::vector<int32_t>> cuts = {{}, {}};
  AttentionOptions options = {.scale = 0.4, .path = "attention"};
  DType dtype = DType::kFloat64;
  std::vector<double> weights = {};  // of the result in the loss; none: uniform values

  Shape shape(int which) const { return {s, b, which == 0 ? n : g, which == 2 ? dv : d}; }
};

struct Sharing {
  CpCommType type = CpCommType::kP2p;
  int size = 2, num_head_ranks = 1;  // the latter of a2a+p2p
};

using Values = std::vector<double>;

/// Query, key, value and the sinks; or the result of attention and the gradients of these.
struct Tensors {
  Values q, k, v, sink, o;
  bool operator==(const Tensors&) const = default;
};

Values uniform_values(const std::string& name, int64_t size) {
  Values values;
  for (int64_t i = 0; i < size; ++i) values.push_back(2 * uniform(RandomKey::from_seed(5).at(name), i) - 1);
  return values;
}

Tensors inputs_of(const Problem& p) {
  return {.q = uniform_values("q", p.shape(0).num_elements()),
          .k = uniform_values("k", p.shape(1).num_elements()),
          .v = uniform_values("v", p.shape(2).num_elements()),
          .sink = uniform_values("sink", p.n),
          .o = {}};
}

/// The rows of a rank, or all of them, between tensors of all tokens and its own.
struct Rows {
  ContextCut cut;
  std::vector<std::vector<int32_t>> cuts;  // of documents, a list for each column

  /// Numbers of the elements of all tokens [s, b, ...] that the rank has, with `width` of them to a row of a column.
  std::vector<size_t> own_elements(int64_t width) const {
    const int64_t b = std::ssize(cuts);
    std::vector<size_t> elements(static_cast<size_t>(cut.num_rows() * b * width));
    for (int64_t column = 0; column < b; ++column) {
      int64_t row = 0;
      for (const PositionRange& run : cut.runs_of(cut.units_of(cuts[static_cast<size_t>(column)])))
        for (int64_t position = run.begin; position < run.end; ++position, ++row)
          for (int64_t i = 0; i < width; ++i)
            elements[static_cast<size_t>((row * b + column) * width + i)] =
                static_cast<size_t>((position * b + column) * width + i);
    }
    return elements;
  }
  Tensor own(const Context& ctx, const Values& all, Shape shape, DType dtype) const {
    const int64_t width = shape.num_elements() / shape[0] / shape[1];
    shape[0] = cut.num_rows();
    Tensor x = ctx.empty("x", shape, dtype);
    dispatch_floating(dtype, [&]<class T>() {
      std::vector<T> values;
      for (const size_t i : own_elements(width)) values.push_back(static_cast<T>(all[i]));
      write_values<T>(ctx.device, values, x);
    });
    return x;
  }
  void collect(const Tensor& own, int64_t s, Values& all) const {
    const Values values = values_of(own);
    const int64_t width = std::ssize(values) / cut.num_rows() / std::ssize(cuts);
    all.resize(static_cast<size_t>(s * width * std::ssize(cuts)));
    const std::vector<size_t> elements = own_elements(width);
    for (size_t i = 0; i < elements.size(); ++i) all[elements[i]] = values[i];
  }
};

/// This rank's part of forward and backward, with weights of the result as its gradient.
void run_part(const Problem& p, const Tensors& in, const ContextAttention& attention, const Rows& rows,
              const SequenceLayout& layout, Context ctx, Tensors& out, std::mutex& mutex) {
  const auto own = [&](const Values& all, const Shape& shape) { return rows.own(ctx, all, shape, p.dtype); };
  QueryKeyValue x{own(in.q, p.shape(0)), own(in.k, p.shape(1)), own(in.v, p.shape(2))};
  Tape tape(ctx.device);
  ctx.tape = &tape;
  ctx.mode = GradMode::kRecord;
  for (Tensor* tensor : {&x.query, &x.key, &x.value}) tape.watch(*tensor);
  std::unique_ptr<Parameter> sink;
  if (p.options.softmax == kernels::AttentionSoftmax::kLearnable) {
    sink = std::make_unique<Parameter>(
        ctx, ParameterOptions{.name = "sink", .shard = ShardSpec::whole({p.n}), .dtype = p.dtype});
    write_values<double>(ctx.device, in.sink, sink->value());
    sink->set_main_grad(ctx.empty("gradient", sink->shape(), p.dtype, MemoryUse::kGradients));
    sink->begin_step();
  }
  const Tensor o = attention.forward(ctx, x, layout, p.options, sink.get());
  const Shape of_result{p.s, p.b, p.n * p.dv};
  tape.seed(ctx, o.slot,
            own(p.weights.empty() ? uniform_values("weights", of_result.num_elements()) : p.weights, of_result));
  tape.backward(ctx, Phase::kBW, 0);
  const std::lock_guard lock(mutex);
  rows.collect(o, p.s, out.o);
  rows.collect(tape.take_gradient(x.query.slot), p.s, out.q);
  rows.collect(tape.take_gradient(x.key.slot), p.s, out.k);
  rows.collect(tape.take_gradient(x.value.slot), p.s, out.v);
  EXPECT_TRUE(tape.is_done());
  if (!sink) return;
  const Values gradient = values_of(sink->main_grad());
  out.sink.resize(gradient.size());
  for (size_t i = 0; i < gradient.size(); ++i) out.sink[i] += gradient[i];
}

Tensors on_one_rank(const Problem& p, const Tensors& in) {
  TestDevice test(DeviceKind::kCpu, 1);  // the thread sanitizer does not know how OpenMP threads synchronise
  Tensors out;
  std::mutex mutex;
  const Rows rows{{.rank = 0, .size = 1, .length = p.s}, p.cuts};
  const Context ctx = test.context();
  run_part(p, in, {}, rows, SequenceLayout::cut_at(ctx, {.s = p.s, .b = p.b}, p.cuts, {}), ctx, out, mutex);
  return out;
}

/// The groups of a2a+p2p.
std::vector<ProcessGroup> levels_of(World& world, const Sharing& sharing) {
  if (sharing.type != CpCommType::kA2aP2p) return {};
  RankLists heads, rings;
  for (int rank = 0; rank < sharing.size; ++rank) {
    heads.resize(static_cast<size_t>(sharing.size / sharing.num_head_ranks));
    rings.resize(static_cast<size_t>(sharing.num_head_ranks));
    heads[static_cast<size_t>(rank / sharing.num_head_ranks)].push_back(rank);
    rings[static_cast<size_t>(rank % sharing.num_head_ranks)].push_back(rank);
  }
  return {world.split("hcp0", heads).value(), world.split("hcp1", rings).value()};
}

Tensors on_ranks(const Problem& p, const Tensors& in, const Sharing& sharing) {
  Tensors out;
  std::mutex mutex;
  run_ranks(sharing.size, [&](RankContext& rank) {
    TestDevice test(DeviceKind::kCpu, 1);
    const Context ctx = test.context();
    const ContextAttention attention(sharing.type, {.cp = rank.group, .levels = levels_of(rank.world, sharing)});
    const Rows rows{{.rank = rank.rank, .size = rank.size, .length = p.s}, p.cuts};
    const SequenceLayout layout = context_parallel_layout(
        ctx, {.b = p.b, .first_sample = 0, .cuts = p.cuts, .positions = {}},
        {.cut = rows.cut,
         .gathers_keys = sharing.type == CpCommType::kAllGather,
         .num_head_ranks = {ContextAttention::num_head_ranks(sharing.type, rank.size, sharing.num_head_ranks)},
         .splits_keys = p.options.dropout > 0});
    run_part(p, in, attention, rows, layout, ctx, out, mutex);
  });
  return out;
}

double distance(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double apart = std::abs(a[i] - b[i]);
    most = std::max(most, std::isnan(apart) ? HUGE_VAL : apart);
  }
  return most;
}

void expect_one_rank_attention(const Problem& p, const Sharing& sharing) {
  const Tensors in = inputs_of(p), actual = on_ranks(p, in, sharing), expected = on_one_rank(p, in);
  // Sums over the keys, over d, and over the queries of a group.
  const double bound = tolerance(p.dtype, p.s * p.n * std::max(p.d, p.dv), 4);
  const auto what = fmt::format("type {} of {} ranks", static_cast<int>(sharing.type), sharing.size);
  EXPECT_LE(distance(actual.o, expected.o), bound) << what;
  EXPECT_LE(distance(actual.q, expected.q), bound) << what;
  EXPECT_LE(distance(actual.k, expected.k), bound) << what;
  EXPECT_LE(distance(actual.v, expected.v), bound) << what;
  EXPECT_LE(distance(actual.sink, expected.sink), bound) << what;
}

const std::vector<Sharing> kAll = {{CpCommType::kP2p, 2},       {CpCommType::kP2p, 3}, {CpCommType::kAllGather, 2},
                                   {CpCommType::kAllGather, 3}, {CpCommType::kA2a, 2}, {CpCommType::kA2aP2p, 4, 2}};
const std::vector<Sharing> kEightRanks = {{CpCommType::kP2p, 8},
                                          {CpCommType::kAllGather, 8},
                                          {CpCommType::kA2a, 8},
                                          {CpCommType::kA2aP2p, 8, 2},
                                          {CpCommType::kA2aP2p, 8, 4}};

TEST(ContextAttention, IsThatOfOneRank) {
  for (const Sharing& sharing : kAll) {
    Problem p;
    if (sharing.size == 4) p.s = 16;
    expect_one_rank_attention(p, sharing);
    p.dv = 3;
    expect_one_rank_attention(p, sharing);
  }
}

TEST(ContextAttention, IsThatOfOneRankForDocuments) {
  for (const Sharing& sharing : kAll) {
    Problem p;
    p.s = 24;
    p.cuts = {{1, 2, 7, 13}, {12}};
    expect_one_rank_attention(p, sharing);
  }
}

/// Documents of 2 * size, 6 * size and 4 * size tokens, in another order in each column.
Problem packed_documents(int size) {
  Problem p;
  p.s = 12 * size;
  p.cuts = {{2 * size, 8 * size}, {4 * size}};
  return p;
}

TEST(ContextAttention, CutsPackedDocumentsEachByItselfAndIsThatOfOneRank) {
  for (const Sharing& sharing : kAll)
    for (const double dropout : {0.0, 0.3}) {
      Problem p = packed_documents(sharing.size);
      p.options.dropout = dropout;
      expect_one_rank_attention(p, sharing);
    }
}

TEST(ContextAttention, OfEightRanksIsThatOfOneRank) {
  for (const Sharing& sharing : kEightRanks) {
    Problem p = packed_documents(sharing.size);
    p.n = 8;
    expect_one_rank_attention(p, sharing);
    p.cuts = {{}, {7, 50}};
    p.options.dropout = 0.3;
    expect_one_rank_attention(p, sharing);
  }
}

/// Column `column` and positions [begin, end) of a tensor of a problem.
Values part_of(const Values& all, int64_t s, int64_t b, int64_t column, int64_t begin, int64_t end) {
  const int64_t width = std::ssize(all) / (s * b);
  Values part;
  for (int64_t position = begin; position < end; ++position)
    for (int64_t i = 0; i < width; ++i) part.push_back(all[static_cast<size_t>((position * b + column) * width + i)]);
  return part;
}

TEST(ContextAttention, OfPackedDocumentsIsThatOfSeparateSequences) {
  constexpr int64_t kLength = 24;
  Problem packed{.s = kLength, .b = 1, .cuts = {{4, 16}}};
  const Tensors in = inputs_of(packed);
  const auto document = [&](const Tensors& x, int64_t begin, int64_t end) {
    const auto part = [&](const Values& all) { return part_of(all, kLength, 1, 0, begin, end); };
    return Tensors{.q = part(x.q), .k = part(x.k), .v = part(x.v), .sink = x.sink, .o = part(x.o)};
  };
  Tensors all;
  all.o = uniform_values("weights", kLength * packed.n * packed.dv);
  for (const Sharing& sharing : {Sharing{CpCommType::kP2p, 1}, Sharing{CpCommType::kP2p, 2},
                                 Sharing{CpCommType::kAllGather, 2}, Sharing{CpCommType::kA2a, 2}}) {
    const Tensors together = sharing.size == 1 ? on_one_rank(packed, in) : on_ranks(packed, in, sharing);
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 16}, {16, 24}}) {
      Problem alone{.s = end - begin, .b = 1, .cuts = {{}}};
      alone.weights = part_of(all.o, kLength, 1, 0, begin, end);
      Tensors expected = on_one_rank(alone, document(in, begin, end));
      Tensors actual = document(together, begin, end);
      const double bound = tolerance(packed.dtype, kLength * packed.n * packed.d, 4);
      EXPECT_LE(distance(actual.o, expected.o), bound);
      EXPECT_LE(distance(actual.q, expected.q), bound);
      EXPECT_LE(distance(actual.k, expected.k), bound);
      EXPECT_LE(distance(actual.v, expected.v), bound);
    }
  }
}

TEST(ContextAttention, DropsTheSameProbabilitiesAsOneRank) {
  for (const Sharing& sharing : kAll)
    for (const auto& cuts : std::vector<std::vector<std::vector<int32_t>>>{{{}, {}}, {{5, 9, 14}, {}}}) {
      Problem p;
      p.s = 24;
      p.cuts = cuts;
      p.options.dropout = 0.3;
      expect_one_rank_attention(p, sharing);
    }
}

TEST(ContextAttention, SharesOneKeyHeadAmongAnyNumberOfRanks) {
  for (const Sharing& sharing : kAll) {
    Problem p;
    p.s = 24;
    p.g = 1;
    expect_one_rank_attention(p, sharing);
  }
}

TEST(ContextAttention, HasWindowsAndSinksWhereEachQuerySeesAllKeys) {
  for (const CpCommType type : {CpCommType::kAllGather, CpCommType::kA2a}) {
    Problem p;
    p.options.window_left = 3;
    p.options.window_right = 0;
    expect_one_rank_attention(p, {type, 2});
    p.options.softmax = kernels::AttentionSoftmax::kLearnable;
    expect_one_rank_attention(p, {type, 2});
  }
}

TEST(ContextAttention, ARingRejectsWindowsAndSinks) {
  Problem windowed, with_sink;
  windowed.options.window_left = 3;
  with_sink.options.softmax = kernels::AttentionSoftmax::kOffByOne;
  for (const Problem& p : {windowed, with_sink}) EXPECT_THROW(on_ranks(p, inputs_of(p), {}), RankFailure);
}

TEST(ContextAttention, InLowerPrecisionIsThatOfOneRankToRounding) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16})
    for (const Sharing& sharing : kAll) {
      Problem p;
      p.s = 16;
      if (sharing.size == 3) p.s = 18;
      p.dtype = dtype;
      expect_one_rank_attention(p, sharing);
    }
}

TEST(ContextAttention, TwoRunsGiveEqualBits) {
  for (const Sharing& sharing : kAll) {
    Problem p;
    p.s = 24;
    p.dtype = DType::kFloat32;
    p.options.dropout = 0.2;
    const Tensors in = inputs_of(p);
    EXPECT_EQ(on_ranks(p, in, sharing), on_ranks(p, in, sharing));
  }
}

/// Sum of the results of all tokens with the weights of run_part.
double loss(const Problem& p, const Tensors& in) {
  const Tensors out = on_ranks(p, in, {});
  const Values weights = uniform_values("weights", std::ssize(out.o));
  double sum = 0;
  for (size_t i = 0; i < weights.size(); ++i) sum += weights[i] * out.o[i];
  return sum;
}

TEST(RingAttention, OfTwoRanksHasTheGradientsOfFiniteDifferences) {
  Problem p{.s = 4, .b = 1, .n = 2, .g = 1, .d = 2, .dv = 2, .cuts = {{}}};
  Tensors in = inputs_of(p);
  const Tensors gradients = on_ranks(p, in, {});
  for (const auto& [values, gradient] :
       {std::pair(&in.q, &gradients.q), std::pair(&in.k, &gradients.k), std::pair(&in.v, &gradients.v)})
    for (size_t i = 0; i < values->size(); ++i) {
      const double value = (*values)[i];
      (*values)[i] = value + kDifferenceStep;
      const double above = loss(p, in);
      (*values)[i] = value - kDifferenceStep;
      const double below = loss(p, in);
      (*values)[i] = value;
      EXPECT_NEAR((above - below) / (2 * kDifferenceStep), (*gradient)[i], kGradientTolerance);
    }
}

}  // namespace
}  // namespace megatron::testing
