#include "megatron/kernels/merge_attention.h"

#include <limits>

#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::kPlacements;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::within;

class CudaMergeAttention : public testing::CudaTest {};

TEST_F(CudaMergeAttention, AgreesWithTheCpu) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  for (DType dtype : kCudaTypes)
    for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{5, 2, 3, 7}, Shape{130, 2, 4, 64}})
      for (Placement placement : kPlacements) {
        SCOPED_TRACE(fmt::format("{} {} gap {} shift {}", dtype, shape, placement.gap, placement.shift));
        const int64_t size = shape.num_elements(), rows = size / shape[3];
        const Shape statistics{shape[2], shape[1], shape[0]};
        std::vector<double> logs = random_values(rows, 3, 2), sum_logs = random_values(rows, 4, 2);
        logs[0] = kNothing;
        if (rows > 1) sum_logs[1] = kNothing;
        Twin o(dtype, shape, random_values(size, 1), placement), lse(DType::kFloat32, statistics, logs);
        Twin sum_o(DType::kFloat32, shape, random_values(size, 2), placement);
        Twin sum_lse(DType::kFloat32, statistics, sum_logs);
        // Exponents of up to 10 lose as many eps.
        compare({within(sum_o, 10, 4), within(sum_lse, 4, 8)}, [&](const auto& stream, auto on) {
          merge_attention(stream, {.o = on(o), .lse = on(lse), .sum_o = on(sum_o), .sum_lse = on(sum_lse)});
        });
      }
}

}  // namespace
}  // namespace megatron::kernels
