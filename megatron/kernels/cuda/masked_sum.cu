#include "megatron/kernels/masked_sum.h"

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

constexpr int kSumThreads = 1024;

/// The sum of what the threads of the block give, on thread 0.
__device__ double sum_of_threads(double value) {
  __shared__ double shared[kSumThreads];
  __syncthreads();
  shared[threadIdx.x] = value;
  for (unsigned stride = kSumThreads / 2; stride > 0; stride /= 2) {
    __syncthreads();
    if (threadIdx.x < stride) shared[threadIdx.x] += shared[threadIdx.x + stride];
  }
  return shared[0];
}

/// One block is enough: there is one number per token.
__global__ void masked_sum_kernel(Scalars loss, Scalars mask, int64_t size, const double* weight, double* sum) {
  double total = 0;
  for (int64_t i = threadIdx.x; i < size; i += kSumThreads)
    if (const double m = mask[i]; m != 0) total += m * loss[i];
  total = sum_of_threads(total);
  if (threadIdx.x == 0) *sum = weight ? total * *weight : total;
}

__global__ void mean_loss_weights_kernel(Scalars mask, Scalars part, int64_t size, const double* weight, double* mean,
                                         double* share) {
  double of_mask = 0, of_part = 0;
  for (int64_t i = threadIdx.x; i < size; i += kSumThreads) {
    of_mask += mask[i];
    of_part += part[i];
  }
  of_mask = sum_of_threads(of_mask);
  of_part = sum_of_threads(of_part);
  if (threadIdx.x != 0) return;
  *mean = 1 / fmax(of_part, 1.0);
  *share = (weight ? *weight : 1.0) * of_mask * *mean;
}

struct Spread {
  Scalars mask;
  const double* d_sum;
  const double* weight;  // or null
  Operand d_loss;
  int64_t columns;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const double factor = weight ? *d_sum * *weight : *d_sum;
    Pack pack = {};
#pragma unroll
    for (int e = 0; e < kPack; ++e)
      if (e < n) pack.v[e] = static_cast<float>(factor * mask[row * columns + begin + e]);
    store(d_loss, row, begin, n, pack);
  }
};

void require_equal(const ConstView& a, const ConstView& b) {
  require<ShapeError>(a.shape == b.shape && a.shape.rank() == 2, "[masked_sum] shapes {} and {} must be equal [s, b].",
                      a.shape, b.shape);
}

const double* pointer_to(const ConstView& weight) { return weight.defined() ? weight.as<double>() : nullptr; }

}  // namespace

void masked_sum_forward(const CudaStream& stream, const MaskedSumForwardArgs& args) {
  require_equal(args.loss, args.mask);
  masked_sum_kernel<<<1, kSumThreads, 0, stream.stream>>>(
      Scalars(args.loss), Scalars(args.mask), args.loss.num_elements(), pointer_to(args.weight), args.sum.as<double>());
  check_launch("masked_sum_forward");
}

void masked_sum_backward(const CudaStream& stream, const MaskedSumBackwardArgs& args) {
  require_equal(args.d_loss, args.mask);
  for_each_pack(stream, "masked_sum_backward", Extent(args.d_loss),
                Spread{Scalars(args.mask), args.d_sum.as<double>(), pointer_to(args.weight), Operand(args.d_loss),
                       args.d_loss.shape[1]});
}

void mean_loss_weights(const CudaStream& stream, const MeanLossWeightsArgs& args) {
  require_equal(args.mask, args.part);
  mean_loss_weights_kernel<<<1, kSumThreads, 0, stream.stream>>>(Scalars(args.mask), Scalars(args.part),
                                                                 args.mask.num_elements(), pointer_to(args.weight),
                                                                 args.mean.as<double>(), args.share.as<double>());
  check_launch("mean_loss_weights");
}

}  // namespace megatron::kernels
