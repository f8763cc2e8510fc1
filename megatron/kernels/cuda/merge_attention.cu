#include "megatron/kernels/merge_attention.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

/// log(exp(a) + exp(b)); -infinity stands for 0.
__device__ float merged_lse(float a, float b) {
  const float most = fmaxf(a, b);
  return most == -INFINITY ? most : most + log1pf(__expf(fminf(a, b) - most));
}

struct MergeOutputs {
  Operand o, sum_o;
  const float *lse, *sum_lse;
  int64_t s, b, n;

  __device__ void operator()(int64_t row, int64_t begin, int count) const {
    const Divided by_n = divide(row, n), by_b = divide(by_n.quotient, b);
    const int64_t i = (by_n.remainder * b + by_b.remainder) * s + by_b.quotient;
    if (lse[i] == -INFINITY) return;
    const float merged = merged_lse(sum_lse[i], lse[i]);
    const float kept = __expf(sum_lse[i] - merged), added = __expf(lse[i] - merged);
    const Pack x = load(o, row, begin, count);
    Pack sum = load(sum_o, row, begin, count);
#pragma unroll
    for (int e = 0; e < kPack; ++e) sum.v[e] = kept * sum.v[e] + added * x.v[e];
    store(sum_o, row, begin, count, sum);
  }
};

/// After MergeOutputs, which reads the sums so far.
__global__ void merge_lse_kernel(const float* lse, float* sum_lse, int64_t size) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i < size) sum_lse[i] = merged_lse(sum_lse[i], lse[i]);
}

}  // namespace

void merge_attention(const CudaStream& stream, const MergeAttentionArgs& args) {
  require<NotSupported>(args.sum_o.dtype == DType::kFloat32, "[merge_attention] {} has no kernel on CUDA. Use the CPU.",
                        args.sum_o.dtype);
  const int64_t size = args.lse.num_elements();
  if (size == 0) return;
  const float* lse = args.lse.as<float>();
  auto* sum_lse = args.sum_lse.as<float>();
  for_each_pack(stream, "merge_attention", Extent(args.sum_o),
                MergeOutputs{Operand(args.o), Operand(args.sum_o), lse, sum_lse, args.o.shape[0], args.o.shape[1],
                             args.o.shape[2]});
  merge_lse_kernel<<<static_cast<unsigned>((size + kBlockThreads - 1) / kBlockThreads), kBlockThreads, 0,
                     stream.stream>>>(lse, sum_lse, size);
  check_launch("merge_attention");
}

}  // namespace megatron::kernels
