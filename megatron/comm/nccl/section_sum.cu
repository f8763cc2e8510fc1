#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "megatron/comm/nccl/cuda_check.h"
#include "megatron/comm/nccl/section_sum.h"

namespace megatron {
namespace {

constexpr int kBlockThreads = 512, kPackBytes = 16;
constexpr int64_t kMostBlocks = 1024;

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void assign(float& to, float x) { to = x; }
__device__ void assign(__nv_bfloat16& to, float x) { to = __float2bfloat16_rn(x); }

template <class T, int kLength>
struct alignas(sizeof(T) * kLength) Pack {
  T values[kLength];
};

/// Every thread reads an element before it writes it, so the sum may be in place.
template <class T, int kLength>
__global__ void __launch_bounds__(kBlockThreads) sum_kernel(SectionSum args) {
  using Packed = Pack<T, kLength>;
  const int64_t num_packs = args.num_elements / kLength, stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_packs; i += stride) {
    Packed packs[kMostSections];
#pragma unroll
    for (int rank = 0; rank < kMostSections; ++rank)
      if (rank < args.num_sections) packs[rank] = static_cast<const Packed*>(args.sections[rank])[i];
    Packed sum;
#pragma unroll
    for (int e = 0; e < kLength; ++e) {
      float value = to_float(packs[0].values[e]);
#pragma unroll
      for (int rank = 1; rank < kMostSections; ++rank)
        if (rank < args.num_sections) value += to_float(packs[rank].values[e]);
      assign(sum.values[e], value);
    }
    static_cast<Packed*>(args.sum)[i] = sum;
  }
}

template <class T, int kLength>
void launch(const SectionSum& args, CUstream_st* stream) {
  const int64_t blocks = (args.num_elements / kLength + kBlockThreads - 1) / kBlockThreads;
  sum_kernel<T, kLength><<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kBlockThreads, 0, stream>>>(args);
  check_cuda_call(cudaGetLastError(), "the sum of sections");
}

template <class T>
void sum(const SectionSum& args, CUstream_st* stream) {
  constexpr int kLength = kPackBytes / sizeof(T);
  const auto is_aligned = [](const void* data) { return reinterpret_cast<uintptr_t>(data) % kPackBytes == 0; };
  const bool is_packed = args.num_elements % kLength == 0 && is_aligned(args.sum) &&
                         std::all_of(args.sections.begin(), args.sections.begin() + args.num_sections, is_aligned);
  is_packed ? launch<T, kLength>(args, stream) : launch<T, 1>(args, stream);
}

template <class T>
void load() {
  cudaFuncAttributes attributes{};
  check_cuda_call(cudaFuncGetAttributes(&attributes, sum_kernel<T, kPackBytes / sizeof(T)>), "cudaFuncGetAttributes");
  check_cuda_call(cudaFuncGetAttributes(&attributes, sum_kernel<T, 1>), "cudaFuncGetAttributes");
}

}  // namespace

void load_section_sums() {
  load<float>();
  load<__nv_bfloat16>();
}

void sum_sections(const SectionSum& args, CUstream_st* stream) {
  if (args.num_elements == 0) return;
  args.dtype == DType::kFloat32 ? sum<float>(args, stream) : sum<__nv_bfloat16>(args, stream);
}

}  // namespace megatron
