// RoPE, embeddings and moved rows on CUDA against the CPU.
#include "megatron/kernels/embedding.h"
#include "megatron/kernels/gather_rows.h"
#include "megatron/kernels/rope.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::kPlacements;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::TwinValues;
using testing::within;

class CudaRows : public testing::CudaTest {};

/// Pseudo-random integers in [low, high).
std::vector<double> random_integers(int64_t n, int64_t low, int64_t high, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    values[static_cast<size_t>(i)] =
        static_cast<double>(low + draw({seed}, 0, 0, i) % static_cast<uint64_t>(high - low));
  return values;
}

TEST_F(CudaRows, RopeAgreesWithTheCpu) {
  for (DType dtype : kCudaTypes)
    for (Placement p : kPlacements)
      for (int64_t half : {1, 3, 8, 32})
        for (RopePairs pairs : {RopePairs::kHalves, RopePairs::kInterleaved}) {
          SCOPED_TRACE(fmt::format("{} half {} gap {} shift {}", dtype, half, p.gap, p.shift));
          const int64_t s = 6, b = 2, heads = 3, d = 2 * half + (half == 8 ? 0 : 5);
          Twin frequencies(DType::kFloat64, {half}, random_values(half, 1));
          Twin cos(DType::kFloat32, {40, half}), sin(DType::kFloat32, {40, half});
          compare({within(cos), within(sin)}, [&](const auto& stream, auto on) {
            rope_table(stream, {.frequencies = on(frequencies),
                                .magnitude = 1.25,
                                .first_position = 11,
                                .cos = on(cos),
                                .sin = on(sin)});
          });
          std::vector<int32_t> places;
          for (int32_t i = 0; i < s * b; ++i) places.push_back(i * 7 % 40);
          TwinValues<int32_t> positions(places);
          Twin x(dtype, {s, b, heads, d}, random_values(s * b * heads * d, 2), p), y(dtype, {s, b, heads, d}, {}, p);
          for (bool inverse : {false, true})
            compare({within(y, 2, 8)}, [&](const auto& stream, auto on) {
              const SequenceLayoutView layout{
                  .s = s, .b = b, .positions = inverse ? on(positions) : nullptr, .first_position = 4};
              rope(stream, {.x = on(x),
                            .y = on(y),
                            .cos = on(cos),
                            .sin = on(sin),
                            .layout = layout,
                            .pairs = pairs,
                            .inverse = inverse});
            });
          // In place.
          compare({within(x, 2, 8)}, [&](const auto& stream, auto on) {
            rope(stream,
                 {.x = on(x), .y = on(x), .cos = on(cos), .sin = on(sin), .layout = {.s = s, .b = b}, .pairs = pairs});
          });
        }
}

TEST_F(CudaRows, EmbeddingsAgreeWithTheCpu) {
  // 12,000 rows are three chunks of the sort.
  for (int64_t num_rows : {1, 130, 4096, 12000})
    for (DType dtype : kCudaTypes)
      for (Placement p : kPlacements) {
        SCOPED_TRACE(fmt::format("{} rows {} gap {} shift {}", dtype, num_rows, p.gap, p.shift));
        const int64_t v = 60, h = num_rows > 1000 ? 24 : 72;
        Twin ids(DType::kInt64, {num_rows, 1}, random_integers(num_rows, 5, 80, 1));
        Twin table(dtype, {v, h}, random_values(v * h, 2), p),
            y(dtype, {num_rows, 1, h}, random_values(num_rows * h, 3), p);
        Twin dtable(DType::kFloat32, {v, h}, random_values(v * h, 4)), rounded(dtype, {v, h}, {}, p);
        Twin workspace(DType::kUInt8, {embedding_backward_workspace_bytes(num_rows)});
        for (bool accumulate : {false, true}) {
          compare({within(y, 1, accumulate ? 4 : 0)}, [&](const auto& stream, auto on) {
            embedding_forward(
                stream,
                {.index = {.ids = on(ids), .first_id = 10}, .table = on(table), .y = on(y), .accumulate = accumulate});
          });
          y.reset();
          // The order of the additions is that of the CPU: equal bits.
          compare({{&dtable}}, [&](const auto& stream, auto on) {
            embedding_backward(stream, {.index = {.ids = on(ids), .first_id = 10},
                                        .dy = on(y),
                                        .dtable = on(dtable),
                                        .accumulate = accumulate,
                                        .workspace = on(workspace)});
          });
        }
        compare({{&rounded}}, [&](const auto& stream, auto on) {
          embedding_backward(stream, {.index = {.layout = {.s = num_rows, .b = 1, .first_position = -3}},
                                      .dy = on(y),
                                      .dtable = on(rounded),
                                      .workspace = on(workspace)});
        });
      }
}

TEST_F(CudaRows, GatherAndScatterAgreeWithTheCpu) {
  for (DType dtype : kCudaTypes)
    for (Placement p : kPlacements) {
      SCOPED_TRACE(fmt::format("{} gap {} shift {}", dtype, p.gap, p.shift));
      const int64_t t = 50, m = 90, h = 40;
      Twin x(dtype, {t, h}, random_values(t * h, 1), p), index(DType::kInt32, {m}, random_integers(m, -1, t, 2));
      Twin weights(DType::kFloat32, {m}, random_values(m, 3)), y(dtype, {m, h}, random_values(m * h, 4), p);
      Twin back(dtype, {t, h}, random_values(t * h, 5), p);
      Twin workspace(DType::kUInt8, {scatter_add_rows_workspace_bytes(m)});
      for (int32_t rows : {70, 95}) {
        TwinValues<int32_t> count({rows});
        TwinValues<StepState> state({StepState{}});
        const auto bounded = [&](auto on, Twin& twin) {
          View view = on(twin);
          view.count = on(count);
          return view;
        };
        compare({{&y}}, [&](const auto& stream, auto on) {
          gather_rows(
              stream,
              {.x = on(x), .index = on(index), .weights = on(weights), .y = bounded(on, y), .state = on(state)});
        });
        EXPECT_EQ(state.from_gpu()[0].overflow, rows > m ? 1 : 0);
        y.reset();
        compare({{&back}}, [&](const auto& stream, auto on) {
          scatter_add_rows(stream, {.x = bounded(on, y),
                                    .index = on(index),
                                    .y = on(back),
                                    .accumulate = rows > m,
                                    .workspace = on(workspace),
                                    .state = on(state)});
        });
        back.reset();
      }
    }
}

TEST_F(CudaRows, CombineAgreesWithTheCpu) {
  for (DType dtype : kCudaTypes)
    for (Placement p : kPlacements)
      for (int64_t h : {40, 1000}) {
        SCOPED_TRACE(fmt::format("{} h {} gap {} shift {}", dtype, h, p.gap, p.shift));
        const int64_t t = 30, k = 2, m = 75;
        std::vector<double> places;
        for (int64_t i = 0; i < t * k; ++i) places.push_back(i % 7 == 3 ? -1 : static_cast<double>((i * 31) % m));
        Twin x(dtype, {m, h}, random_values(m * h, 1), p), slots(DType::kInt32, {t, k}, places);
        Twin weights(DType::kFloat32, {t, k}, random_values(t * k, 2)), y(dtype, {t, h}, {}, p);
        Twin dy(dtype, {t, h}, random_values(t * h, 3), p), dx(dtype, {m, h}, {}, p), dweights(DType::kFloat32, {t, k});
        compare({within(y, k, 8)}, [&](const auto& stream, auto on) {
          combine_rows_forward(stream, {.x = on(x), .slots = on(slots), .weights = on(weights), .y = on(y)});
        });
        compare({{&dx}, within(dweights, h, 4)}, [&](const auto& stream, auto on) {
          combine_rows_backward(stream, {.x = on(x),
                                         .slots = on(slots),
                                         .weights = on(weights),
                                         .dy = on(dy),
                                         .dx = on(dx),
                                         .dweights = on(dweights)});
        });
      }
}

}  // namespace
}  // namespace megatron::kernels
