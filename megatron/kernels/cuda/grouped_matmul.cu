// Products of groups of rows in plain fp32 arithmetic, for GPUs, dtypes and alignments that grouped_matmul_sm90.h does
// not take: far from the speed of tensor cores. A block computes a tile of 64 x 64 elements, a thread 4 x 4 of them.
#include "megatron/kernels/grouped_matmul.h"

#include "megatron/kernels/cuda/grouped_matmul_sm90.h"
#include "megatron/kernels/cuda/launch.cuh"

namespace megatron::kernels {
namespace {

constexpr int kTile = 64, kDepth = 16, kSide = 16, kEach = kTile / kSide;

/// A matrix of one floating dtype, of which a kernel reads op(matrix).
struct Matrix {
  char* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t row_stride = 0, column_stride = 1;

  __device__ float at(int64_t row, int64_t column) const {
    return load_scalar(data, dtype, row * row_stride + column * column_stride);
  }
  __device__ void set(int64_t row, int64_t column, float value) const {
    store_scalar(data, dtype, row * row_stride + column * column_stride, value);
  }
  __device__ Matrix from_row(int64_t row) const {
    Matrix part = *this;
    part.data += row * row_stride * (dtype == DType::kFloat32 ? 4 : 2);
    return part;
  }
};

/// The tile of c = a b that begins at (row, column), where a is [m, k] and b [k, n], or c += . Sums run over k in
/// order.
__device__ void multiply_tile(const Matrix& a, const Matrix& b, const Matrix& c, int64_t m, int64_t n, int64_t k,
                              int64_t row, int64_t column, bool accumulate) {
  __shared__ float a_tile[kDepth][kTile + 1], b_tile[kDepth][kTile + 1];
  const int thread = static_cast<int>(threadIdx.x), x = thread % kSide, y = thread / kSide;
  float sums[kEach][kEach] = {};
  for (int64_t depth = 0; depth < k; depth += kDepth) {
    for (int i = thread; i < kTile * kDepth; i += kBlockThreads) {
      const int64_t in_k = depth + i % kDepth, in_m = row + i / kDepth, in_n = column + i / kDepth;
      a_tile[i % kDepth][i / kDepth] = in_m < m && in_k < k ? a.at(in_m, in_k) : 0;
      b_tile[i % kDepth][i / kDepth] = in_n < n && in_k < k ? b.at(in_k, in_n) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] += a_tile[d][y + i * kSide] * b_tile[d][x + j * kSide];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t in_m = row + y + i * kSide, in_n = column + x + j * kSide;
      if (in_m < m && in_n < n) c.set(in_m, in_n, accumulate ? c.at(in_m, in_n) + sums[i][j] : sums[i][j]);
    }
}

/// Block (x, y): tile x of the columns, tile y of the rows of all groups, each group beginning a tile of its own. Tiles
/// past the last do nothing: the host knows only how many there may be.
__global__ void __launch_bounds__(kBlockThreads)
    grouped_matmul_kernel(Matrix a, Matrix b, int64_t b_group_rows, Matrix c, RowGroupsView groups, int64_t n,
                          int64_t k) {
  int64_t tile = blockIdx.y, group = 0;
  for (; group < groups.num_groups; ++group) {
    const int64_t tiles = (groups.end(group) - groups.begin(group) + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (group == groups.num_groups) return;
  const int64_t begin = groups.begin(group), m = groups.end(group) - begin;
  Matrix weight = b;
  weight.data += group * b_group_rows * (b.dtype == DType::kFloat32 ? 4 : 2);
  multiply_tile(a.from_row(begin), weight, c.from_row(begin), m, n, k, tile * kTile,
                static_cast<int64_t>(blockIdx.x) * kTile, false);
}

/// Block (x, y, z): tile (y, x) of the gradient of group z.
__global__ void __launch_bounds__(kBlockThreads)
    grouped_wgrad_kernel(Matrix a, Matrix b, Matrix c, RowGroupsView groups, int64_t o, int64_t i, bool accumulate) {
  const int64_t group = blockIdx.z, begin = groups.begin(group), rows = groups.end(group) - begin;
  Matrix transposed = a.from_row(begin), gradient = c;
  std::swap(transposed.row_stride, transposed.column_stride);
  gradient.data += group * o * i * (c.dtype == DType::kFloat32 ? 4 : 2);
  multiply_tile(transposed, b.from_row(begin), gradient, o, i, rows, static_cast<int64_t>(blockIdx.y) * kTile,
                static_cast<int64_t>(blockIdx.x) * kTile, accumulate);
}

/// The last two dimensions of a contiguous view.
Matrix matrix(const char* kernel, const ConstView& x) {
  require<NotSupported>(x.dtype != DType::kFloat64, "[{}] float64 on CUDA: choose float32, bfloat16 or float16.",
                        kernel);
  require<ShapeError>(x.strides[-1] == 1 || x.shape[-1] == 1, "[{}] the columns of shape {} lie apart.", kernel,
                      x.shape);
  return {const_cast<char*>(static_cast<const char*>(x.data)), x.dtype, x.strides[-2], 1};
}

int64_t tiles_of(int64_t size) { return (size + kTile - 1) / kTile; }

}  // namespace

void grouped_matmul(const CudaStream& stream, const GroupedMatmulArgs& args) {
  const int64_t n = args.c.shape[1], k = args.a.shape[1];
  Matrix b = matrix("grouped_matmul", args.b);
  if (args.transpose_b) std::swap(b.row_stride, b.column_stride);
  const int64_t row_tiles = tiles_of(args.groups.capacity) + args.groups.num_groups;
  require<NotSupported>(row_tiles < 65536, "[grouped_matmul] {} rows in {} groups are too many for one launch.",
                        args.groups.capacity, args.groups.num_groups);
  if (n == 0 || args.groups.capacity == 0 || grouped_matmul_sm90(stream, args)) return;
  const dim3 grid(static_cast<unsigned>(tiles_of(n)), static_cast<unsigned>(row_tiles));
  grouped_matmul_kernel<<<grid, kBlockThreads, 0, stream.stream>>>(
      matrix("grouped_matmul", args.a), b, args.b.strides[0], matrix("grouped_matmul", args.c), args.groups, n, k);
  check_launch("grouped_matmul");
}

void grouped_wgrad(const CudaStream& stream, const GroupedWgradArgs& args) {
  const int64_t o = args.c.shape[1], i = args.c.shape[2];
  require<NotSupported>(tiles_of(o) < 65536 && args.groups.num_groups < 65536,
                        "[grouped_wgrad] gradients of shape {} are too large for one launch.", args.c.shape);
  if (o == 0 || i == 0 || args.groups.num_groups == 0 || grouped_wgrad_sm90(stream, args)) return;
  const dim3 grid(static_cast<unsigned>(tiles_of(i)), static_cast<unsigned>(tiles_of(o)),
                  static_cast<unsigned>(args.groups.num_groups));
  grouped_wgrad_kernel<<<grid, kBlockThreads, 0, stream.stream>>>(
      matrix("grouped_wgrad", args.a), matrix("grouped_wgrad", args.b), matrix("grouped_wgrad", args.c), args.groups, o,
      i, args.accumulate);
  check_launch("grouped_wgrad");
}

int64_t grouped_matmul_workspace_bytes(const CudaStream&, const GroupedMatmulArgs&) { return 0; }
int64_t grouped_wgrad_workspace_bytes(const CudaStream&, const GroupedWgradArgs&) { return 0; }

}  // namespace megatron::kernels
