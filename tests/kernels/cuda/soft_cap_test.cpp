#include "megatron/kernels/soft_cap.h"

#include "tests/kernels/cuda/twin.h"

namespace megatron::kernels {
namespace {
using testing::kCudaTypes;
using testing::kPlacements;
using testing::Placement;
using testing::random_values;
using testing::Twin;
using testing::within;

class CudaSoftCap : public testing::CudaTest {};

TEST_F(CudaSoftCap, AgreesWithTheCpu) {
  constexpr double kCap = 3;
  for (DType dtype : kCudaTypes)
    for (const Shape& shape : {Shape{1, 1}, Shape{5, 7}, Shape{2, 3, 64}, Shape{9, 2056}})
      for (Placement placement : kPlacements) {
        SCOPED_TRACE(fmt::format("{} {} gap {} shift {}", dtype, shape, placement.gap, placement.shift));
        const int64_t n = shape.num_elements();
        Twin x(dtype, shape, random_values(n, 1, 9), placement), y(dtype, shape, {}, placement);
        Twin dy(dtype, shape, random_values(n, 2), placement), dx(dtype, shape, {}, placement);
        compare({within(y, 1, kCap)},
                [&](const auto& stream, auto on) { soft_cap_forward(stream, {.x = on(x), .y = on(y), .cap = kCap}); });
        compare({within(dx, 1, 2)}, [&](const auto& stream, auto on) {
          soft_cap_backward(stream, {.y = on(y), .dy = on(dy), .dx = on(dx), .cap = kCap});
        });
      }
}

}  // namespace
}  // namespace megatron::kernels
