#include "megatron/kernels/sum_heads.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

/// A row is a token.
struct SumHeads {
  Operand x, y;
  int64_t num_heads;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    Pack sum = load(x, row * num_heads, begin, n);
    for (int64_t head = 1; head < num_heads; ++head) {
      const Pack addend = load(x, row * num_heads + head, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) sum.v[e] += addend.v[e];
    }
    store(y, row, begin, n, sum);
  }
};

}  // namespace

void sum_heads(const CudaStream& stream, const SumHeadsArgs& args) {
  require<NotSupported>(args.y.dtype != DType::kFloat64, "[sum_heads] fp64 has no kernel on CUDA. Use the CPU.");
  for_each_pack(stream, "sum_heads", Extent(args.y), SumHeads{Operand(args.x), Operand(args.y), args.x.shape[2]});
}

}  // namespace megatron::kernels
