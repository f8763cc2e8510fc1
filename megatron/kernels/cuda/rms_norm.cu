#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "megatron/kernels/cuda/rms_norm.h"

namespace megatron::kernels {
namespace {

constexpr int kThreads = 256;  // of a block, which owns a row

struct Row {
  int64_t h;
  float eps;
  bool zero_centered_gamma;
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float to_float(__half x) { return __half2float(x); }
template <class T>
__device__ T from_float(float x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
    return T(x);
}

/// Sum over the block, the same on every thread and in the same order in every run.
__device__ float block_sum(float value) {
  __shared__ float warp_sums[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) sum += warp_sums[warp];
  return sum;
}

/// The row's sum z is read twice; the second read comes from the cache of the first.
template <class T>
__global__ void rms_norm_rows(const T* x, const T* residual, const T* gamma, T* residual_out, T* y, float* rstd_out,
                              const int32_t* count, Row row) {
  if (count && static_cast<int64_t>(blockIdx.x) >= *count) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * row.h;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < row.h; i += kThreads) {
    float z = to_float(x[begin + i]);
    if (residual) {
      const T rounded = from_float<T>(z + to_float(residual[begin + i]));
      residual_out[begin + i] = rounded;
      z = to_float(rounded);
    }
    squares += z * z;
  }
  const float rstd = rsqrtf(block_sum(squares) / static_cast<float>(row.h) + row.eps);
  const T* z_row = residual ? residual_out : x;
  for (int64_t i = threadIdx.x; i < row.h; i += kThreads) {
    const float weight = gamma ? to_float(gamma[i]) + (row.zero_centered_gamma ? 1.0F : 0.0F) : 1.0F;
    y[begin + i] = from_float<T>(to_float(z_row[begin + i]) * rstd * weight);
  }
  if (rstd_out && threadIdx.x == 0) rstd_out[blockIdx.x] = rstd;
}

template <class T>
void launch_rows(const CudaStream& stream, const RmsNormForwardArgs& args) {
  const int64_t h = args.x.shape[-1], num_rows = h == 0 ? 0 : args.x.num_elements() / h;
  if (num_rows == 0) return;
  rms_norm_rows<T><<<static_cast<unsigned>(num_rows), kThreads, 0, stream.stream>>>(
      static_cast<const T*>(args.x.data), static_cast<const T*>(args.residual.data),
      static_cast<const T*>(args.gamma.data), static_cast<T*>(args.residual_out.data), static_cast<T*>(args.y.data),
      static_cast<float*>(args.rstd.data), args.x.count, {h, static_cast<float>(args.eps), args.zero_centered_gamma});
  const cudaError_t error = cudaGetLastError();
  require<DeviceError>(error == cudaSuccess, "[rms_norm] the launch of {} rows failed: {}.", num_rows,
                       cudaGetErrorString(error));
}

void require_plain(const RmsNormForwardArgs& args) {
  const bool is_contiguous =
      args.x.is_contiguous() && args.y.is_contiguous() && (!args.residual.defined() || args.residual.is_contiguous());
  const bool has_one_dtype =
      args.y.dtype == args.x.dtype && (!args.gamma.defined() || args.gamma.dtype == args.x.dtype);
  require<NotSupported>(is_contiguous && has_one_dtype,
                        "[rms_norm] on CUDA rows must be contiguous and of one dtype: x is {}, y {}.", args.x.dtype,
                        args.y.dtype);
}

}  // namespace

void rms_norm_forward(const CudaStream& stream, const RmsNormForwardArgs& args) {
  require_plain(args);
  switch (args.x.dtype) {
    case DType::kFloat32:
      return launch_rows<float>(stream, args);
    case DType::kBFloat16:
      return launch_rows<__nv_bfloat16>(stream, args);
    case DType::kFloat16:
      return launch_rows<__half>(stream, args);
    default:
      throw NotSupported(fmt::format("[rms_norm] {} on CUDA: choose float32, bfloat16 or float16.", args.x.dtype));
  }
}

}  // namespace megatron::kernels
