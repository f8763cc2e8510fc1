// One launch over many ranges: a block finds the range of its chunk.
#pragma once

#include <algorithm>

#include "megatron/kernels/cuda/launch.cuh"
#include "megatron/kernels/optimizer_ranges.h"

namespace megatron::kernels {

/// A flat contiguous operand, with the names of Operand.
struct FlatOperand {
  char* data;
  DType dtype;
  bool is_vectorised;
  static constexpr int64_t step = 1;

  __device__ FlatOperand(const void* address, DType type, bool is_aligned)
      : data(const_cast<char*>(static_cast<const char*>(address))), dtype(type), is_vectorised(is_aligned) {}
  __device__ FlatOperand(const void* address, DType type)
      : FlatOperand(address, type, reinterpret_cast<uintptr_t>(address) % 16 == 0) {}
  __device__ explicit operator bool() const { return data != nullptr; }
};

/// The ranges of a launch: in device memory, or a single one as an argument.
struct RangeTable {
  const OptimizerRange* table;
  int64_t num_ranges;

  /// The last range that begins at this chunk or before: empty ones begin where the next one does. For whole warps.
  __device__ const OptimizerRange& range_of(int64_t chunk) const {
    int64_t low = 0, high = num_ranges;
    while (high - low > 1) {  // the threads of a warp probe 32 places at once
      const int64_t stride = (high - low + 31) / 32, place = low + static_cast<int64_t>(threadIdx.x % 32) * stride;
      const bool begins = place < high && table[place].first_chunk <= chunk;
      low += (__popc(__ballot_sync(~0u, begins)) - 1) * stride;
      high = min(high, low + stride);
    }
    return table[low];
  }
};
struct SingleRange {
  OptimizerRange range;
  __device__ const OptimizerRange& range_of(int64_t) const { return range; }
};

/// Calls body(begin, n) for this thread's packs of elements [first, end) of a range.
template <class Body>
__device__ void for_chunk_packs(int64_t first, int64_t end, const Body& body) {
  for (int64_t i = first + threadIdx.x * kPack; i < end; i += kBlockThreads * kPack) body(i, pack_size(end, i));
}
/// The same for whole packs only.
template <class Body>
__device__ void for_whole_packs(int64_t first, int64_t end, const Body& body) {
  for (int64_t i = first + threadIdx.x * kPack; i < end; i += kBlockThreads * kPack) body(i, kPack);
}

/// Calls step(range, first, end) for each chunk of each range; values of a range are computed once per chunk.
template <class Ranges, class Step>
__global__ void __launch_bounds__(kBlockThreads, 3)
    ranges_kernel(const __grid_constant__ Ranges ranges, const __grid_constant__ Step step) {
  const OptimizerRange& range = ranges.range_of(blockIdx.x);
  const int64_t first = (blockIdx.x - range.first_chunk) * kRangeChunk;
  if (!step.state->found_inf) step(range, first, min(first + kRangeChunk, range.size));
}

template <class Ranges, class Step>
void for_each_range(const CudaStream& stream, const char* kernel, const Ranges& ranges, int64_t num_chunks,
                    const Step& step) {
  if (num_chunks == 0) return;
  require<NotSupported>(num_chunks < (int64_t{1} << 31), "[{}] {} chunks of {} elements are too many.", kernel,
                        num_chunks, kRangeChunk);
  ranges_kernel<<<static_cast<unsigned>(num_chunks), kBlockThreads, 0, stream.stream>>>(ranges, step);
  check_launch(kernel);
}

/// Checks the dtypes of kernels over ranges. @throw DtypeError
inline void check_range_dtypes(const char* kernel, const RangeDTypes& dtypes, bool rounds_parameters = false) {
  const bool is_rounded = rounds_parameters && dtypes.parameter == DType::kBFloat16;
  require<DtypeError>(dtypes.has_remainders || is_rounded || dtypes.parameter == DType::kFloat32,
                      "[{}] main parameters of {} on CUDA: choose float32.", kernel, dtypes.parameter);
  for (DType dtype : {dtypes.gradient, dtypes.first_moment, dtypes.second_moment, dtypes.model_weight})
    require<DtypeError>(dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16,
                        "[{}] {} operands on CUDA: choose float32, bfloat16 or float16.", kernel, dtype);
}

/// The data of a flat view, after a check. @throw ShapeError
inline void* flat_data(const char* kernel, const ConstView& x, int64_t size) {
  require<ShapeError>(!x.defined() || (x.is_contiguous() && x.num_elements() >= size),
                      "[{}] operands must be contiguous, of {} elements; got {} with strides {}.", kernel, size,
                      x.shape, x.strides);
  return const_cast<void*>(x.data);
}

}  // namespace megatron::kernels
