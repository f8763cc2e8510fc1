// RMS and layer normalisation on CUDA against the CPU.
#include "megatron/kernels/layer_norm.h"
#include "megatron/kernels/rms_norm.h"
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

const Shape kShapes[] = {{1, 1}, {5, 7}, {2, 3, 64}, {9, 129}, {33, 520}, {3, 2056}, {2, 9000}, {2, 16392}};

struct NormCase {
  NormCase(DType dtype, const Shape& shape, Placement p) : h(shape[-1]), rows(shape.num_elements() / h) {
    const int64_t n = shape.num_elements();
    x = Twin(dtype, shape, random_values(n, 1), p);
    residual = Twin(dtype, shape, random_values(n, 2, 0.5), p);
    gamma = Twin(dtype, {h}, random_values(h, 3), {0, p.shift});
    beta = Twin(dtype, {h}, random_values(h, 4), {0, p.shift});
    dy = Twin(dtype, shape, random_values(n, 5), p);
    dresidual = Twin(dtype, shape, random_values(n, 6), p);
    residual_out = Twin(dtype, shape, {}, p);
    y = Twin(dtype, shape, {}, p);
    dx = Twin(dtype, shape, {}, p);
    mean = Twin(DType::kFloat32, {rows}, random_values(rows, 7, 0.1));
    rstd = Twin(DType::kFloat32, {rows}, std::vector<double>(static_cast<size_t>(rows), 0.8));
    dgamma = Twin(DType::kFloat32, {h}, random_values(h, 8));
    dbeta = Twin(dtype, {h}, random_values(h, 9));
    workspace = Twin(DType::kUInt8, {layer_norm_backward_workspace_bytes(rows, h, dtype)});
  }
  int64_t h, rows;
  Twin x, residual, gamma, beta, dy, dresidual, residual_out, y, dx, mean, rstd, dgamma, dbeta, workspace;
};

template <class F>
void for_all_cases(F&& f) {
  for (DType dtype : kCudaTypes)
    for (const Shape& shape : kShapes)
      for (Placement placement : kPlacements) {
        SCOPED_TRACE(fmt::format("{} {} gap {} shift {}", dtype, shape, placement.gap, placement.shift));
        NormCase c(dtype, shape, placement);
        f(c);
      }
}

class CudaNorm : public testing::CudaTest {
 protected:
  void expect_equal_forward(NormCase& c) {
    for (bool with_residual : {false, true}) {
      c.residual_out.reset();
      std::vector<testing::Result> results = {within(c.y, 4 * c.h, 4), within(c.rstd, c.h)};
      if (with_residual) results.push_back({&c.residual_out});
      compare(results, [&](const auto& stream, auto on) {
        rms_norm_forward(stream, {.x = on(c.x),
                                  .residual = with_residual ? on(c.residual) : View{},
                                  .gamma = on(c.gamma),
                                  .residual_out = with_residual ? on(c.residual_out) : View{},
                                  .y = on(c.y),
                                  .rstd = on(c.rstd),
                                  .zero_centered_gamma = with_residual});
      });
      results.push_back(within(c.mean, c.h));
      compare(results, [&](const auto& stream, auto on) {
        layer_norm_forward(stream, {.x = on(c.x),
                                    .residual = with_residual ? on(c.residual) : View{},
                                    .gamma = on(c.gamma),
                                    .beta = on(c.beta),
                                    .residual_out = with_residual ? on(c.residual_out) : View{},
                                    .y = on(c.y),
                                    .mean = on(c.mean),
                                    .rstd = on(c.rstd),
                                    .zero_centered_gamma = with_residual});
      });
    }
  }
  void expect_equal_backward(NormCase& c) {
    for (bool accumulate : {false, true}) {
      const std::vector<testing::Result> results = {within(c.dx, 4 * c.h, 4), within(c.dgamma, c.rows, 8)};
      compare(results, [&](const auto& stream, auto on) {
        rms_norm_backward(stream, {.x = on(c.x),
                                   .gamma = on(c.gamma),
                                   .rstd = on(c.rstd),
                                   .dy = on(c.dy),
                                   .dresidual = accumulate ? on(c.dresidual) : View{},
                                   .dx = on(c.dx),
                                   .dgamma = on(c.dgamma),
                                   .accumulate = accumulate,
                                   .zero_centered_gamma = accumulate,
                                   .workspace = on(c.workspace)});
      });
      c.dgamma.reset();
      compare({results[0], results[1], within(c.dbeta, c.rows, 4)}, [&](const auto& stream, auto on) {
        layer_norm_backward(stream, {.x = on(c.x),
                                     .gamma = on(c.gamma),
                                     .mean = on(c.mean),
                                     .rstd = on(c.rstd),
                                     .dy = on(c.dy),
                                     .dresidual = accumulate ? on(c.dresidual) : View{},
                                     .dx = on(c.dx),
                                     .dgamma = on(c.dgamma),
                                     .dbeta = on(c.dbeta),
                                     .accumulate = accumulate,
                                     .workspace = on(c.workspace)});
      });
      c.dgamma.reset();
      c.dbeta.reset();
    }
  }
};

TEST_F(CudaNorm, ForwardAgreesWithTheCpu) {
  for_all_cases([&](NormCase& c) { expect_equal_forward(c); });
}

TEST_F(CudaNorm, BackwardAgreesWithTheCpu) {
  for_all_cases([&](NormCase& c) { expect_equal_backward(c); });
}

/// More rows than the device works on at once, for teams of one warp to a whole block, and one to four packs a thread.
TEST_F(CudaNorm, ManyRowsAgreeWithTheCpu) {
  for (const Shape& shape : {Shape{40000, 24}, Shape{9000, 264}, Shape{4000, 712}, Shape{4000, 896}, Shape{2000, 1600},
                             Shape{700, 4104}, Shape{300, 8192}, Shape{300, 16384}}) {
    NormCase c(DType::kBFloat16, shape, {});
    expect_equal_forward(c);
    expect_equal_backward(c);
  }
}

TEST_F(CudaNorm, RowsPastTheCountAreNotWritten) {
  NormCase c(DType::kBFloat16, {40, 72}, {});
  TwinValues<int32_t> count({23});
  const auto bounded = [&](auto on, Twin& twin) {
    View view = on(twin);
    view.count = on(count);
    return view;
  };
  compare({within(c.y, c.h, 4), within(c.rstd, c.h)}, [&](const auto& stream, auto on) {
    rms_norm_forward(stream, {.x = bounded(on, c.x), .gamma = on(c.gamma), .y = bounded(on, c.y), .rstd = on(c.rstd)});
  });
  compare({within(c.dx, c.h, 4), within(c.dgamma, c.rows, 8)}, [&](const auto& stream, auto on) {
    rms_norm_backward(stream, {.x = bounded(on, c.x),
                               .gamma = on(c.gamma),
                               .rstd = on(c.rstd),
                               .dy = bounded(on, c.dy),
                               .dx = bounded(on, c.dx),
                               .dgamma = on(c.dgamma),
                               .workspace = on(c.workspace)});
  });
}

TEST_F(CudaNorm, DoublePrecisionIsRejected) {
  NormCase c(DType::kFloat64, {4, 8}, {});
  EXPECT_THROW(rms_norm_forward(stream_, {.x = c.x.gpu(), .gamma = c.gamma.gpu(), .y = c.y.gpu()}), DtypeError);
}

}  // namespace
}  // namespace megatron::kernels
