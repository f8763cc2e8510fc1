// Gathers of rows by index: embeddings and routed tokens.
#pragma once

#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {

/// Rows of the output that a thread has in flight: first their indices, then their packs.
inline constexpr int kGatherRows = 4;

/// out[row] = body.finish(row, begin, n, pack of x[body.source(row)]); the pack is 0 if the source is negative.
template <class X, class Body>
__global__ void __launch_bounds__(kBlockThreads) gather_kernel(Extent extent, X x, unsigned column_blocks, Body body) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x / column_blocks) * blockDim.y + threadIdx.y) * kGatherRows;
  const int64_t begin = (static_cast<int64_t>(blockIdx.x % column_blocks) * blockDim.x + threadIdx.x) * kPack;
  const int64_t rows = extent.true_rows();
  if (begin >= extent.columns) return;
  const int n = pack_size(extent.columns, begin);
  int64_t sources[kGatherRows];
#pragma unroll
  for (int i = 0; i < kGatherRows; ++i) sources[i] = first + i < rows ? body.source(first + i) : -1;
  RawPack raw[kGatherRows];
#pragma unroll
  for (int i = 0; i < kGatherRows; ++i)
    if (sources[i] >= 0) raw[i] = load_raw(x, sources[i], begin, n);
#pragma unroll
  for (int i = 0; i < kGatherRows; ++i)
    if (first + i < rows) body.finish(first + i, begin, n, sources[i] >= 0, sources[i] >= 0 ? convert(raw[i]) : Pack{});
}

/// For the rows of `extent`, which is that of the output.
template <class X, class Body>
void gather(const CudaStream& stream, const char* kernel, const Extent& extent, const X& x, const Body& body) {
  if (extent.is_empty()) return;
  const unsigned threads = row_threads(extent.columns, kBlockThreads), teams = kBlockThreads / threads;
  const int64_t row_blocks = (extent.rows + teams * kGatherRows - 1) / (teams * kGatherRows);
  const int64_t packs = (extent.columns + kPack - 1) / kPack, column_blocks = (packs + threads - 1) / threads;
  require<NotSupported>(row_blocks * column_blocks < (int64_t{1} << 31), "[{}] {} rows of {} elements are too many.",
                        kernel, extent.rows, extent.columns);
  gather_kernel<<<static_cast<unsigned>(row_blocks * column_blocks), dim3(threads, teams), 0, stream.stream>>>(
      extent, x, static_cast<unsigned>(column_blocks), body);
  check_launch(kernel);
}

}  // namespace megatron::kernels
