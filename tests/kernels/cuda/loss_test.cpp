// Cross entropy and the sum of losses on CUDA against the CPU.
#include "megatron/kernels/cross_entropy.h"
#include "megatron/kernels/masked_sum.h"
#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::kPlacements;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::within;

class CudaLoss : public testing::CudaTest {};

struct Case {
  Case(DType dtype, int64_t t, int64_t v, Placement p) {
    logits = Twin(dtype, {t, v}, random_values(t * v, 1, 3), p);
    std::vector<double> ids, mask_values;
    for (int64_t i = 0; i < t; ++i) ids.push_back(static_cast<double>(i * 37 % v));
    for (int64_t i = 0; i < t; ++i) mask_values.push_back(i % 5 == 2 ? 0 : 0.5);
    targets = Twin(DType::kInt64, {t}, ids);
    mask = Twin(DType::kFloat32, {t}, mask_values);
    d_loss = Twin(DType::kFloat32, {t}, random_values(t, 2));
    for (Twin* x : {&max, &sum_exp, &target, &total, &loss}) *x = Twin(DType::kFloat32, {t});
    d_logits = Twin(dtype, {t, v}, {}, p);
  }
  Twin logits, targets, mask, d_loss, max, sum_exp, target, total, loss, d_logits;
};

TEST_F(CudaLoss, CrossEntropyAgreesWithTheCpu) {
  for (DType dtype : kCudaTypes)
    for (Placement p : kPlacements)
      for (int64_t v : {3, 65, 2000, 33001}) {
        SCOPED_TRACE(fmt::format("{} v {} gap {} shift {}", dtype, v, p.gap, p.shift));
        const int64_t t = 13;
        Case c(dtype, t, v, p);
        const VocabularyColumns columns{.first_id = 0, .vocab_size = v - 2};
        for (double smoothing : {0.0, 0.1}) {
          compare({{&c.max}, within(c.sum_exp, v, 4), within(c.loss, v, 4)}, [&](const auto& stream, auto on) {
            cross_entropy_forward(stream, {.logits = on(c.logits),
                                           .columns = columns,
                                           .targets = on(c.targets),
                                           .loss_mask = on(c.mask),
                                           .label_smoothing = smoothing,
                                           .max = on(c.max),
                                           .sum_exp = on(c.sum_exp),
                                           .loss = on(c.loss)});
          });
          compare({within(c.d_logits, 1, 4)}, [&](const auto& stream, auto on) {
            cross_entropy_backward(stream, {.logits = on(c.logits),
                                            .columns = columns,
                                            .targets = on(c.targets),
                                            .max = on(c.max),
                                            .sum_exp = on(c.sum_exp),
                                            .loss_mask = on(c.mask),
                                            .d_loss = on(c.d_loss),
                                            .label_smoothing = smoothing,
                                            .d_logits = on(c.d_logits)});
          });
        }
      }
}

TEST_F(CudaLoss, TheGradientMayOverwriteTheLogits) {
  for (DType dtype : kCudaTypes)
    for (int64_t v : {65, 2000, 5003}) {
      Case c(dtype, 9, v, {});
      Twin peak(DType::kFloat32, {9}, std::vector<double>(9, 8)),
          weight(DType::kFloat32, {9}, std::vector<double>(9, 3));
      compare({within(c.logits, 1, 4)}, [&](const auto& stream, auto on) {
        cross_entropy_backward(stream, {.logits = on(c.logits),
                                        .columns = {0, v - 1},
                                        .targets = on(c.targets),
                                        .max = on(peak),
                                        .sum_exp = on(weight),
                                        .loss_mask = on(c.mask),
                                        .d_loss = on(c.d_loss),
                                        .d_logits = on(c.logits)});
      });
    }
}

TEST_F(CudaLoss, ThePiecesOfAShardAgreeWithTheCpu) {
  const int64_t t = 13, v = 500;
  for (DType dtype : kCudaTypes) {
    Case c(dtype, t, v, {});
    // Columns 300 .. 799 of 700 tokens: some targets lie outside, and the last columns are padding.
    const VocabularyColumns columns{.first_id = 300, .vocab_size = 700};
    compare({{&c.max}}, [&](const auto& stream, auto on) {
      cross_entropy_max(stream, {.logits = on(c.logits), .columns = columns, .max = on(c.max)});
    });
    compare({within(c.sum_exp, v, 4), within(c.target), within(c.total, v, 100)}, [&](const auto& stream, auto on) {
      cross_entropy_sums(stream, {.logits = on(c.logits),
                                  .columns = columns,
                                  .targets = on(c.targets),
                                  .max = on(c.max),
                                  .sum_exp = on(c.sum_exp),
                                  .target = on(c.target),
                                  .total = on(c.total)});
    });
    compare({within(c.loss, v, 8)}, [&](const auto& stream, auto on) {
      cross_entropy_loss(stream, {.sum_exp = on(c.sum_exp),
                                  .target = on(c.target),
                                  .total = on(c.total),
                                  .loss_mask = on(c.mask),
                                  .label_smoothing = 0.2,
                                  .vocab_size = 700,
                                  .loss = on(c.loss)});
    });
  }
}

TEST_F(CudaLoss, MaskedSumAgreesWithTheCpu) {
  for (int64_t s : {1, 7, 3000}) {
    const int64_t b = 3;
    Twin loss(DType::kFloat32, {s, b}, random_values(s * b, 1), {2, 0}), d_loss(DType::kFloat32, {s, b}, {}, {2, 0});
    Twin mask(DType::kFloat32, {s, b}, random_values(s * b, 2)), sum(DType::kFloat64, {1});
    Twin d_sum(DType::kFloat64, {1}, {0.3}), weight(DType::kFloat64, {1}, {0.7});
    compare({{&sum, testing::tolerance(DType::kFloat64, s * b, 8)}}, [&](const auto& stream, auto on) {
      masked_sum_forward(stream, {.loss = on(loss), .mask = on(mask), .weight = on(weight), .sum = on(sum)});
    });
    compare({{&d_loss}}, [&](const auto& stream, auto on) {
      masked_sum_backward(stream, {.mask = on(mask), .d_sum = on(d_sum), .weight = on(weight), .d_loss = on(d_loss)});
    });
  }
}

}  // namespace
}  // namespace megatron::kernels
