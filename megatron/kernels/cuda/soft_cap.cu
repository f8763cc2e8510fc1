#include "megatron/kernels/soft_cap.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

struct Forward {
  Operand x, y;
  float cap, inverse;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    Pack out = load(x, row, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) out.v[e] = cap * tanhf(inverse * out.v[e]);
    store(y, row, begin, n, out);
  }
};

struct Backward {
  Operand y, dy, dx;
  float inverse;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const Pack value = load(y, row, begin, n);
    Pack out = load(dy, row, begin, n);
#pragma unroll
    for (int e = 0; e < kPack; ++e) {
      const float t = inverse * value.v[e];
      out.v[e] *= (1 - t) * (1 + t);
    }
    store(dx, row, begin, n, out);
  }
};

void require_no_doubles(const View& out) {
  require<NotSupported>(out.dtype != DType::kFloat64, "[soft_cap] fp64 has no kernel on CUDA. Use the CPU.");
}

}  // namespace

void soft_cap_forward(const CudaStream& stream, const SoftCapForwardArgs& args) {
  require_no_doubles(args.y);
  for_each_pack(
      stream, "soft_cap", Extent(args.y),
      Forward{Operand(args.x), Operand(args.y), static_cast<float>(args.cap), static_cast<float>(1 / args.cap)});
}

void soft_cap_backward(const CudaStream& stream, const SoftCapBackwardArgs& args) {
  require_no_doubles(args.dx);
  for_each_pack(stream, "soft_cap", Extent(args.dx),
                Backward{Operand(args.y), Operand(args.dy), Operand(args.dx), static_cast<float>(1 / args.cap)});
}

}  // namespace megatron::kernels
