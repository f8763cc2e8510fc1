// Routing and expert kernels on CUDA against the CPU.
#include <cmath>

#include "megatron/kernels/expert_capacity.h"
#include "megatron/kernels/grouped_matmul.h"
#include "megatron/kernels/permutation.h"
#include "megatron/kernels/router.h"
#include "megatron/kernels/row_weights.h"
#include "megatron/kernels/token_sections.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::random_values;
using testing::Result;
using testing::tolerance;
using testing::Twin;
using testing::TwinValues;
using testing::within;

class CudaExperts : public testing::CudaTest {};

/// A map in which about one of `every` entries is set.
std::vector<double> random_map(int64_t n, int64_t every, uint64_t seed) {
  std::vector<double> map(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) map[static_cast<size_t>(i)] = draw({seed}, 0, 0, i) % every == 0 ? 1 : 0;
  return map;
}
/// The result must be the same to the bit.
Result exactly(Twin& twin) { return {&twin}; }

constexpr int64_t kTokenCounts[] = {1, 33, 1023, 2100};

TEST_F(CudaExperts, RouterAgreesWithTheCpu) {
  for (const int64_t t : kTokenCounts)
    for (const RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid, RouterScore::kSqrtSoftplus})
      for (const bool has_groups : {false, true}) {
        const int64_t e = 12;
        const RouterTopkOptions options{.topk = 3,
                                        .score = score,
                                        .pre_softmax = has_groups,
                                        .num_groups = has_groups ? 4 : 0,
                                        .group_topk = has_groups ? 2 : 0,
                                        .group_score_topk = has_groups && t % 2 == 1 ? 2 : 0,
                                        .scaling_factor = 2.5};
        Twin logits(DType::kFloat32, {t, e}, random_values(t * e, 1)), bias(DType::kFloat32, {e}, random_values(e, 2));
        Twin probs(DType::kFloat32, {t, e}), map(DType::kUInt8, {t, e}), dlogits(DType::kFloat32, {t, e});
        Twin dprobs(DType::kFloat32, {t, e}, random_values(t * e, 3));
        compare({within(probs, e), exactly(map)}, [&](const auto& stream, auto on) {
          router_topk_forward(stream, {.logits = on(logits),
                                       .selection = {},
                                       .expert_bias = on(bias),
                                       .probs = on(probs),
                                       .map = on(map),
                                       .options = options});
        });
        compare({within(dlogits, e, 4), exactly(map)}, [&](const auto& stream, auto on) {
          topk_map(stream, {.x = on(logits), .map = on(map), .topk = 3});
          router_topk_backward(
              stream,
              {.logits = on(logits), .map = on(map), .dprobs = on(dprobs), .dlogits = on(dlogits), .options = options});
        });
      }
}

TEST_F(CudaExperts, LossesAgreeWithTheCpu) {
  for (const int64_t t : kTokenCounts)
    for (const int64_t n : {1, 3}) {
      const int64_t e = 10;
      Twin logits(DType::kFloat32, {t, e}, random_values(t * e, 1));
      Twin map(DType::kUInt8, {t, e}, random_map(t * e, 3, 2)),
          counts(DType::kFloat32, {n, e}, random_values(n * e, 3));
      for (const bool accumulate : {false, true})
        compare({exactly(counts)}, [&](const auto& stream, auto on) {
          count_tokens(stream, {.map = on(map), .counts = on(counts), .accumulate = false});
          if (accumulate) count_tokens(stream, {.map = on(map), .counts = on(counts), .accumulate = true});
        });
      Twin rows(DType::kFloat64, {t}), loss(DType::kFloat64, {1}), upstream(DType::kFloat32, {t, e});
      Twin dlogits(DType::kFloat32, {t, e}), scale(DType::kFloat64, {1}, {0.5});
      upstream = Twin(DType::kFloat32, {t, e}, random_values(t * e, 4));
      compare({within(loss, e), within(dlogits, e, 4)}, [&](const auto& stream, auto on) {
        count_tokens(stream, {.map = on(map), .counts = on(counts)});
        balance_loss_forward(stream, {.logits = on(logits),
                                      .counts = on(counts),
                                      .row_losses = on(rows),
                                      .loss = on(loss),
                                      .score = RouterScore::kSigmoid,
                                      .factor = 1 / static_cast<double>(t)});
        balance_loss_backward(stream, {.logits = on(logits),
                                       .counts = on(counts),
                                       .dlogits_out = on(upstream),
                                       .scale = on(scale),
                                       .dlogits = on(dlogits),
                                       .score = RouterScore::kSigmoid});
      });
      compare({within(loss, e, 16), within(dlogits, e, 8)}, [&](const auto& stream, auto on) {
        z_loss_forward(
            stream,
            {.logits = on(logits), .row_losses = on(rows), .loss = on(loss), .factor = 1 / static_cast<double>(t)});
        z_loss_backward(
            stream, {.logits = on(logits), .dlogits_out = on(upstream), .scale = on(scale), .dlogits = on(dlogits)});
      });
    }
}

TEST_F(CudaExperts, BalancingWithoutALossAgreesWithTheCpu) {
  const int64_t t = 1500, e = 6;
  Twin logits(DType::kFloat32, {t, e}, random_values(t * e, 1)), values(DType::kFloat32, {t, e});
  Twin workspace(DType::kUInt8, {sinkhorn_workspace_bytes(t, e)});
  compare({within(values, e)}, [&](const auto& stream, auto on) {
    sinkhorn(stream, {.logits = on(logits), .values = on(values), .workspace = on(workspace)});
  });
  Twin counts(DType::kFloat32, {e}, {3, 9, 6, 6, 5, 7}), bias(DType::kFloat32, {e}, random_values(e, 2));
  Twin counts_with_number(DType::kFloat32, {e + 1}, {3, 9, 6, 6, 5, 7, 4});
  compare({exactly(bias)}, [&](const auto& stream, auto on) {
    update_expert_bias(stream, {.counts = on(counts), .expert_bias = on(bias), .rate = 0.01});
  });
  Twin sums(DType::kFloat32, {e + 1}, {0, 0, 0, 0, 0, 0, 0}), margins(DType::kUInt8, {quantile_workspace_bytes(t, e)});
  compare({exactly(values), exactly(sums)}, [&](const auto& stream, auto on) {
    quantile_balance(stream, {.logits = on(logits),
                              .beta = on(bias),
                              .values = on(values),
                              .sums = on(sums),
                              .workspace = on(margins),
                              .topk = 2});
  });
  compare({within(bias, e)}, [&](const auto& stream, auto on) {
    update_quantile_beta(stream, {.sums = on(counts_with_number), .beta = on(bias), .ema = 0.5});
  });
  TwinValues<StepState> state({StepState{.step = 3}});
  compare({within(values, 1, 8)}, [&](const auto& stream, auto on) {
    fill_forced_logits(stream,
                       {.logits = on(values), .key = {1}, .bias_key = {2}, .state = on(state), .bias_std = 0.5});
  });
}

TEST_F(CudaExperts, DroppingAndPaddingAgreeWithTheCpuInEachTie) {
  for (const int64_t t : kTokenCounts)
    for (const auto policy : {TokenDropPolicy::kProbs, TokenDropPolicy::kPosition})
      for (const bool pad : {false, true})
        for (const int64_t capacity : {int64_t{1}, t / 3 + 1, t + 5}) {
          SCOPED_TRACE(fmt::format("{} tokens, capacity {}, pad {}", t, capacity, pad));
          const int64_t e = 5;
          const std::vector<double> bits = random_map(t * e, 2, 1);
          std::vector<double> values(bits.size());
          for (size_t i = 0; i < bits.size(); ++i)  // few values, so that many are equal
            values[i] = bits[i] * static_cast<double>(1 + draw({7}, 0, 0, static_cast<int64_t>(i)) % 8) / 8;
          Twin map(DType::kUInt8, {t, e}, bits), probs(DType::kFloat32, {t, e}, values);
          Twin out_map(DType::kUInt8, {t, e}), out_probs(DType::kFloat32, {t, e}), masked(DType::kFloat32, {t, e});
          Twin workspace(DType::kUInt8, {drop_tokens_workspace_bytes(t, e)}), padded(DType::kUInt8, {t, e});
          compare({exactly(out_map), exactly(out_probs), exactly(masked), exactly(padded)},
                  [&](const auto& stream, auto on) {
                    drop_tokens(stream, {.probs = on(probs),
                                         .map = on(map),
                                         .out_probs = on(out_probs),
                                         .out_map = on(out_map),
                                         .workspace = on(workspace),
                                         .capacity = capacity,
                                         .policy = policy,
                                         .pad = pad});
                    mask_probs(stream, {.probs = on(probs), .map = on(out_map), .out_probs = on(masked)});
                    pad_routing_map(stream, {.map = on(map), .out_map = on(padded), .multiple = 16});
                  });
        }
}

/// Sections with room for all tokens, for most of them, and for one.
TEST_F(CudaExperts, SectionsOfTokensAndTheirOverflowAgreeWithTheCpu) {
  constexpr int64_t kSectionExperts = 12;
  for (const int64_t t : kTokenCounts)
    for (const int64_t n : {1, 3, 12})
      for (const int64_t size : {t, (t + 1) / 2, int64_t{1}}) {
        SCOPED_TRACE(fmt::format("{} tokens, {} ranks, {} rows", t, n, size));
        Twin map(DType::kUInt8, {t, kSectionExperts}, random_map(t * kSectionExperts, 6, 9));
        Twin tokens(DType::kInt32, {n * size}), slots(DType::kInt32, {t, n});
        Twin section_map(DType::kUInt8, {n * size, kSectionExperts / n});
        TwinValues<StepState> state({StepState{}});
        compare({exactly(tokens), exactly(slots), exactly(section_map)}, [&](const auto& stream, auto on) {
          token_sections(stream, {.map = on(map),
                                  .tokens = on(tokens),
                                  .slots = on(slots),
                                  .section_map = on(section_map),
                                  .state = on(state)});
        });
        EXPECT_EQ(state.from_gpu()[0].overflow, state.from_cpu()[0].overflow);
      }
}

/// Groups of 0, 1, 70, 64, 0 and 30 rows in a capacity of 170.
const std::vector<int32_t> kOffsets = {0, 0, 1, 71, 135, 135, 165};
constexpr int64_t kGroups = 6, kCapacity = 170;

TEST_F(CudaExperts, SortedRowsAgreeWithTheCpu) {
  for (const int64_t t : kTokenCounts) {
    const int64_t e = 9, capacity = t * 4;
    Twin map(DType::kUInt8, {t, e}, random_map(t * e, 4, 5)), probs(DType::kFloat32, {t, e}, random_values(t * e, 1));
    Twin offsets(DType::kInt32, {e + 1}), count(DType::kInt32, {1}), tokens(DType::kInt32, {capacity});
    Twin slots(DType::kInt32, {t, e}), row_probs(DType::kFloat32, {capacity}), dprobs(DType::kFloat32, {t, e});
    compare(
        {exactly(offsets), exactly(count), exactly(tokens), exactly(slots), exactly(row_probs), exactly(dprobs)},
        [&](const auto& stream, auto on) {
          sort_by_expert(
              stream,
              {.map = on(map), .offsets = on(offsets), .count = on(count), .tokens = on(tokens), .slots = on(slots)});
          const RowGroupsView groups{static_cast<const int32_t*>(on(offsets).data), e, capacity};
          permute_probs_forward(
              stream, {.probs = on(probs), .tokens = on(tokens), .groups = groups, .row_probs = on(row_probs)});
          permute_probs_backward(
              stream, {.drow_probs = on(row_probs), .tokens = on(tokens), .groups = groups, .dprobs = on(dprobs)});
        });
  }
}

TEST_F(CudaExperts, GroupedProductsAgreeWithTheCpu) {
  TwinValues<int32_t> offsets(kOffsets);
  for (const DType dtype : kCudaTypes)
    for (const int64_t size : {1, 24, 65}) {
      SCOPED_TRACE(fmt::format("{} size {}", dtype, size));
      const int64_t n = size + 3;
      Twin a(dtype, {kCapacity, size}, random_values(kCapacity * size, 1));
      Twin b(dtype, {kGroups, n, size}, random_values(kGroups * n * size, 2));
      Twin c(dtype, {kCapacity, n}), back(dtype, {kCapacity, size});
      Twin main_grad(DType::kFloat32, {kGroups, n, size}, random_values(kGroups * n * size, 3));
      Twin dy(dtype, {kCapacity, n}, random_values(kCapacity * n, 4)), workspace(DType::kUInt8, {1 << 24});
      compare({within(c, size, 3), within(back, n, 3)}, [&](const auto& stream, auto on) {
        const RowGroupsView groups{on(offsets), kGroups, kCapacity};
        grouped_matmul(
            stream,
            {.a = on(a), .b = on(b), .c = on(c), .groups = groups, .transpose_b = true, .workspace = on(workspace)});
        grouped_matmul(stream, {.a = on(dy),
                                .b = on(b),
                                .c = on(back),
                                .groups = groups,
                                .transpose_b = false,
                                .workspace = on(workspace)});
      });
      for (const bool accumulate : {false, true})
        compare({within(main_grad, 70, 3)}, [&](const auto& stream, auto on) {
          const RowGroupsView groups{on(offsets), kGroups, kCapacity};
          grouped_wgrad(stream, {.a = on(dy),
                                 .b = on(a),
                                 .c = on(main_grad),
                                 .groups = groups,
                                 .accumulate = accumulate,
                                 .workspace = on(workspace)});
        });
    }
}

/// Sizes of which tensor cores take whole tiles, parts of tiles and parts of boxes. The last group ends in the middle
/// of the rows; what follows is NaN and belongs to none.
TEST_F(CudaExperts, GroupedProductsOfTensorCoresAgreeWithTheCpu) {
  constexpr int64_t kRows = 1000, kEnd = 813;
  const std::vector<int32_t> ends = {0, 0, 1, 71, 135, 135, 565, kEnd};
  const auto num_groups = static_cast<int64_t>(ends.size()) - 1;
  TwinValues<int32_t> offsets(ends);
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{8, 8}, {264, 72}, {128, 200}, {520, 328}}) {
      SCOPED_TRACE(fmt::format("{} n {} k {}", dtype, n, k));
      const auto rows = [&](int64_t columns, uint64_t seed) {
        std::vector<double> values = random_values(kRows * columns, seed);
        std::fill(values.begin() + kEnd * columns, values.end(), std::nan(""));
        return values;
      };
      Twin a(dtype, {kRows, k}, rows(k, 1)), b(dtype, {num_groups, n, k}, random_values(num_groups * n * k, 2));
      Twin c(dtype, {kRows, n}), dy(dtype, {kRows, n}, rows(n, 4)), da(dtype, {kRows, k});
      Twin main_grad(DType::kFloat32, {num_groups, n, k}, random_values(num_groups * n * k, 3));
      Twin grad(dtype, {num_groups, n, k}, random_values(num_groups * n * k, 5));
      Twin workspace(DType::kUInt8, {1 << 24});
      const auto groups = [&](auto on) { return RowGroupsView{on(offsets), num_groups, kRows}; };
      compare({within(c, k, std::sqrt(k))}, [&](const auto& stream, auto on) {
        grouped_matmul(stream, {.a = on(a),
                                .b = on(b),
                                .c = on(c),
                                .groups = groups(on),
                                .transpose_b = true,
                                .workspace = on(workspace)});
      });
      compare({within(da, n, std::sqrt(n))}, [&](const auto& stream, auto on) {
        grouped_matmul(stream, {.a = on(dy),
                                .b = on(b),
                                .c = on(da),
                                .groups = groups(on),
                                .transpose_b = false,
                                .workspace = on(workspace)});
      });
      // The CPU rounds sums of parts of the rows to the dtype of the gradient.
      constexpr int64_t kMostRows = 430;
      const double sum = std::sqrt(kMostRows);
      const Result results[] = {within(main_grad, kMostRows, sum),
                                {&grad, tolerance(dtype, kMostRows, 1), 2 * epsilon(dtype)}};
      for (const Result& gradient : results)
        for (const bool accumulate : {false, true})
          compare({gradient}, [&](const auto& stream, auto on) {
            grouped_wgrad(stream, {.a = on(dy),
                                   .b = on(a),
                                   .c = on(*gradient.twin),
                                   .groups = groups(on),
                                   .accumulate = accumulate,
                                   .workspace = on(workspace)});
          });
    }
}

TEST_F(CudaExperts, WeightedRowsAndGroupedBiasesAgreeWithTheCpu) {
  TwinValues<int32_t> offsets(kOffsets);
  TwinValues<int32_t> count({165});
  for (const DType dtype : kCudaTypes)
    for (const int64_t n : {1, 24, 300}) {
      SCOPED_TRACE(fmt::format("{} columns {}", dtype, n));
      Twin x(dtype, {kCapacity, n}, random_values(kCapacity * n, 1)), y(dtype, {kCapacity, n});
      Twin bias(dtype, {kGroups, n}, random_values(kGroups * n, 2)), z(dtype, {kCapacity, n});
      Twin weights(DType::kFloat32, {kCapacity}, random_values(kCapacity, 3));
      Twin dots(DType::kFloat32, {kCapacity}), bias_dots(DType::kFloat32, {kCapacity});
      Twin dbias(DType::kFloat32, {kGroups, n}, random_values(kGroups * n, 4));
      compare({within(y, 1, 4), within(z, 2, 4), within(dots, n, 4), within(bias_dots, n, 4), within(dbias, 70, 4)},
              [&](const auto& stream, auto on) {
                const RowGroupsView groups{on(offsets), kGroups, kCapacity};
                View bounded = on(y), in = on(x);
                bounded.count = in.count = on(count);
                bounded.is_bounded = in.is_bounded = true;
                scale_rows(stream, {.x = on(x), .weights = on(weights), .y = bounded});
                row_dots(stream, {.a = in, .b = on(x), .dots = on(dots)});
                grouped_bias_forward(
                    stream, {.x = on(x), .bias = on(bias), .weights = on(weights), .groups = groups, .y = on(z)});
                grouped_bias_backward(
                    stream,
                    {.dy = on(x), .weights = on(weights), .groups = groups, .dbias = on(dbias), .accumulate = true});
                grouped_bias_dots(stream, {.dy = on(x), .bias = on(bias), .groups = groups, .dots = on(bias_dots)});
              });
    }
}

}  // namespace
}  // namespace megatron::kernels
