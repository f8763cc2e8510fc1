// Launch patterns of kernels: packs of rows, one block or warp per row, and sums over columns.
#pragma once

#include <cuda_runtime.h>

#include "megatron/core/cuda_stream.h"
#include "megatron/kernels/column_sum.h"
#include "megatron/kernels/cuda/operand.cuh"

namespace megatron::kernels {

inline constexpr int kBlockThreads = 256;

inline void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  require<DeviceError>(error == cudaSuccess, "[{}] the launch failed: {}.", kernel, cudaGetErrorString(error));
}

/// Rows and columns of a kernel. Dimension 0 of the operand, which the count bounds, is a multiple of the rows,
/// or of the columns if the operand is one row.
struct Extent {
  int64_t rows = 0, columns = 0;  // capacity
  const int32_t* count = nullptr;
  int64_t dimension0 = 0;
  bool is_flat = false;

  Extent() = default;
  explicit Extent(const ConstView& x) : columns(x.shape[-1]), count(x.count), dimension0(x.shape[0]) {
    rows = columns == 0 || dimension0 == 0 ? 0 : x.num_elements() / columns;
    if (x.shape.rank() == 1 || rows == 0) count = nullptr;
  }
  /// All of a contiguous operand as one row.
  static Extent flat(const ConstView& x) {
    Extent extent;
    extent.rows = 1;
    extent.columns = x.num_elements();
    extent.count = x.count;
    extent.dimension0 = x.shape.rank() > 0 ? x.shape[0] : 0;
    extent.is_flat = true;
    return extent;
  }
  bool is_empty() const { return rows == 0 || columns == 0; }
  __device__ int64_t bounded(int64_t capacity) const {
    if (!count) return capacity;
    const int64_t true_size = *count < dimension0 ? *count : dimension0;
    return capacity / dimension0 * (true_size > 0 ? true_size : 0);
  }
  __device__ int64_t true_rows() const { return is_flat ? rows : bounded(rows); }
  __device__ int64_t true_columns() const { return is_flat ? bounded(columns) : columns; }
};

__device__ inline int pack_size(int64_t columns, int64_t begin) {
  return columns - begin < kPack ? static_cast<int>(columns - begin) : kPack;
}

/// Packs of a thread. A body that fetches packs before it uses them has two in flight.
template <class Body>
inline constexpr int kThreadPacks = requires {
  &Body::fetch;
}
? 2 : 1;

/// body(row, begin, n) for each pack, or body.use(body.fetch(row, begin, n), row, begin, n, nullptr).
template <class Body>
__global__ void __launch_bounds__(kBlockThreads) packs_kernel(Extent extent, unsigned column_blocks, Body body) {
  constexpr int kPacks = kThreadPacks<Body>;
  const int64_t row = static_cast<int64_t>(blockIdx.x / column_blocks) * blockDim.y + threadIdx.y;
  const int64_t first = (static_cast<int64_t>(blockIdx.x % column_blocks) * kPacks * blockDim.x + threadIdx.x) * kPack;
  const int64_t columns = extent.true_columns(), stride = static_cast<int64_t>(blockDim.x) * kPack;
  if (row >= extent.true_rows()) return;
  if constexpr (kPacks == 1) {
    if (first < columns) body(row, first, pack_size(columns, first));
  } else {
    decltype(body.fetch(row, first, 0)) fetched[kPacks];
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (first + k * stride < columns)
        fetched[k] = body.fetch(row, first + k * stride, pack_size(columns, first + k * stride));
#pragma unroll
    for (int k = 0; k < kPacks; ++k)
      if (first + k * stride < columns)
        body.use(fetched[k], row, first + k * stride, pack_size(columns, first + k * stride), nullptr);
  }
}

/// Number of threads for a row of `columns` elements: a power of two.
inline unsigned row_threads(int64_t columns, unsigned most) {
  unsigned threads = 1;
  while (threads < most && threads * static_cast<int64_t>(kPack) < columns) threads *= 2;
  return threads;
}

/// Calls the body on the device for each pack of the extent; `body` is a struct with a __device__ call operator, or
/// with `fetch` and `use` as for sum_columns.
template <class Body>
void for_each_pack(const CudaStream& stream, const char* kernel, const Extent& extent, const Body& body) {
  if (extent.is_empty()) return;
  constexpr int kPacks = kThreadPacks<Body>;
  const unsigned x = row_threads((extent.columns + kPacks - 1) / kPacks, kBlockThreads), y = kBlockThreads / x;
  const int64_t row_blocks = (extent.rows + y - 1) / y, packs = (extent.columns + kPack - 1) / kPack;
  const int64_t column_blocks = (packs + x * kPacks - 1) / (x * kPacks);
  require<NotSupported>(row_blocks * column_blocks < (int64_t{1} << 31), "[{}] {} rows of {} elements are too many.",
                        kernel, extent.rows, extent.columns);
  packs_kernel<<<static_cast<unsigned>(row_blocks * column_blocks), dim3(x, y), 0, stream.stream>>>(
      extent, static_cast<unsigned>(column_blocks), body);
  check_launch(kernel);
}

/// Blocks of a kernel that the device can hold at once.
template <class Kernel>
int64_t num_resident_blocks(const char* name, Kernel* kernel, int threads, size_t shared_bytes) {
  int device = 0, processors = 0, blocks = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error == cudaSuccess)
    error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes);
  require<DeviceError>(error == cudaSuccess && blocks > 0, "[{}] blocks of {} threads with {} bytes do not fit: {}.",
                       name, threads, shared_bytes, cudaGetErrorString(error));
  return int64_t{processors} * blocks;
}

/// Columns of packs and rows of threads of a block that sums over rows, and the number of blocks.
inline constexpr int kSumPacks = 32, kSumRows = 8;
inline constexpr int64_t kSumBlocks = 16 * kMostColumnSumParts;

/// Calls body.use(body.fetch(row, begin, n), row, begin, n, sums) for each pack; the body adds to
/// sums[output][element]; Body::kRowsAhead rows are fetched before the first is used. Block (c, part) owns the packs
/// [32 c, 32 c + 32) of a part of the rows; its rows of threads are added in order at the end.
template <int kOutputs, class Body>
__global__ void __launch_bounds__(kSumPacks* kSumRows)
    column_sums_kernel(Extent extent, int64_t num_parts, float* partial, Body body) {
  __shared__ float shared[kSumRows][kSumPacks * kPack];
  const int64_t begin = (static_cast<int64_t>(blockIdx.x) * kSumPacks + threadIdx.x) * kPack;
  const int64_t rows = extent.true_rows(), part = blockIdx.y;
  const int64_t first = rows * part / num_parts, end = rows * (part + 1) / num_parts;
  constexpr int kRowsAhead = Body::kRowsAhead;
  float sums[kOutputs][kPack] = {};
  const int n = begin < extent.columns ? pack_size(extent.columns, begin) : 0;
  for (int64_t row = first + threadIdx.y; n > 0 && row < end; row += kRowsAhead * kSumRows) {
    decltype(body.fetch(row, begin, n)) fetched[kRowsAhead];
#pragma unroll
    for (int ahead = 0; ahead < kRowsAhead; ++ahead)
      if (row + ahead * kSumRows < end) fetched[ahead] = body.fetch(row + ahead * kSumRows, begin, n);
#pragma unroll
    for (int ahead = 0; ahead < kRowsAhead; ++ahead)
      if (row + ahead * kSumRows < end) body.use(fetched[ahead], row + ahead * kSumRows, begin, n, sums);
  }
#pragma unroll
  for (int output = 0; output < kOutputs; ++output) {
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kPack; ++e) shared[threadIdx.y][e * kSumPacks + threadIdx.x] = sums[output][e];
    __syncthreads();
    // Thread (x, y) adds element y of pack x.
    float sum = 0;
    for (int r = 0; r < kSumRows; ++r) sum += shared[r][threadIdx.y * kSumPacks + threadIdx.x];
    const int64_t column = begin + threadIdx.y;
    if (column < extent.columns) partial[(part * kOutputs + output) * extent.columns + column] = sum;
  }
}
static_assert(kSumRows == kPack);

/// The workspace of sums over `num_columns` columns of all outputs, after a check of its size.
inline float* column_sum_workspace(const char* kernel, const View& workspace, int64_t num_rows, int64_t num_columns) {
  const int64_t bytes = column_sum_workspace_bytes(num_rows, num_columns, DType::kFloat32);
  require<InternalError>(workspace.defined() && workspace.num_elements() >= bytes,
                         "[{}] {} bytes of workspace are needed, got {}", kernel, bytes,
                         workspace.defined() ? workspace.num_elements() : 0);
  return static_cast<float*>(workspace.data);
}

/// outs[i] = sum over parts of partial[part, i], or outs[i] +=, where partial is [num_parts, num_outputs, columns].
/// There are one or two outputs, which may be undefined.
void store_column_sums(const CudaStream& stream, const float* partial, int64_t num_parts, int64_t columns,
                       int num_outputs, const View* outs, bool accumulate);

/// Calls body.fetch and body.use for each pack and stores the sums over rows: output i in outs[i].
template <int kOutputs, class Body>
void sum_columns(const CudaStream& stream, const char* kernel, const Extent& extent, const View& workspace,
                 const View* outs, bool accumulate, const Body& body) {
  const int64_t columns = extent.columns;
  if (columns == 0) return;
  float* partial = column_sum_workspace(kernel, workspace, extent.rows, kOutputs * columns);
  const int64_t column_blocks = (columns + kSumPacks * kPack - 1) / (kSumPacks * kPack);
  const int64_t num_parts =
      std::clamp<int64_t>(std::min(kSumBlocks / column_blocks, extent.rows / (2 * kSumRows)), 1, kMostColumnSumParts);
  const dim3 grid(static_cast<unsigned>(column_blocks), static_cast<unsigned>(num_parts));
  column_sums_kernel<kOutputs><<<grid, dim3(kSumPacks, kSumRows), 0, stream.stream>>>(extent, num_parts, partial, body);
  check_launch(kernel);
  store_column_sums(stream, partial, num_parts, columns, kOutputs, outs, accumulate);
}

}  // namespace megatron::kernels
