#include "megatron/kernels/weighted_activation.h"

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

class CudaWeightedActivation : public testing::CudaTest {};

/// Rows of a warp and of a block, whole packs and parts of one.
constexpr int64_t kWidths[] = {1, 7, 24, 200, 520, 2056};

TEST_F(CudaWeightedActivation, AgreesWithTheCpu) {
  for (const DType dtype : kCudaTypes)
    for (const int64_t f : kWidths)
      for (const bool is_gated : {false, true})
        for (const Placement placement : kPlacements) {
          SCOPED_TRACE(fmt::format("{} f {} gated {} gap {}", dtype, f, is_gated, placement.gap));
          const int64_t m = 19, columns = is_gated ? 2 * f : f;
          const GateOptions options = f % 2 == 1 ? GateOptions{.clamp = 0.7, .linear_offset = 0.5} : GateOptions{};
          Twin x(dtype, {m, columns}, random_values(m * columns, 1), placement);
          Twin dy(dtype, {m, f}, random_values(m * f, 2), placement), y(dtype, {m, f}, {}, placement);
          Twin weights(DType::kFloat32, {m}, random_values(m, 3)), dweights(DType::kFloat32, {m});
          Twin dx(dtype, {m, columns}, {}, placement);
          compare({within(y, 1, 8)}, [&](const auto& stream, auto on) {
            weighted_activation_forward(
                stream, {.x = on(x), .weights = on(weights), .y = on(y), .is_gated = is_gated, .options = options});
          });
          compare({within(dx, 1, 8), within(dweights, f, 8)}, [&](const auto& stream, auto on) {
            weighted_activation_backward(stream, {.x = on(x),
                                                  .weights = on(weights),
                                                  .dy = on(dy),
                                                  .dx = on(dx),
                                                  .dweights = on(dweights),
                                                  .is_gated = is_gated,
                                                  .options = options});
          });
        }
}

TEST_F(CudaWeightedActivation, WorksOnBoundedRowsInPlaceAndForOneGradientAlone) {
  TwinValues<int32_t> count({13});
  for (const DType dtype : kCudaTypes)
    for (const int64_t f : kWidths) {
      SCOPED_TRACE(fmt::format("{} f {}", dtype, f));
      const int64_t m = 19;
      Twin x(dtype, {m, 2 * f}, random_values(m * 2 * f, 1)), dy(dtype, {m, f}, random_values(m * f, 2));
      Twin weights(DType::kFloat32, {m}, random_values(m, 3)), dweights(DType::kFloat32, {m});
      const auto run = [&](const auto& stream, auto on, bool wants_dx) {
        View bounded = on(dy);
        bounded.count = on(count);
        bounded.is_bounded = true;
        weighted_activation_backward(stream, {.x = on(x),
                                              .weights = on(weights),
                                              .dy = bounded,
                                              .dx = wants_dx ? View(on(x)) : View{},
                                              .dweights = wants_dx ? View{} : View(on(dweights)),
                                              .is_gated = true});
      };
      compare({within(dweights, f, 8)}, [&](const auto& stream, auto on) { run(stream, on, false); });
      compare({within(x, 1, 8)}, [&](const auto& stream, auto on) { run(stream, on, true); });
    }
}

}  // namespace
}  // namespace megatron::kernels
