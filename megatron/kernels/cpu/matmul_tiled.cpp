#include "megatron/kernels/cpu/matmul_tiled.h"

#include <omp.h>

#include "megatron/kernels/cpu/matmul_extents.h"
#include "megatron/kernels/cpu/matmul_tile.h"

namespace megatron::kernels {
namespace {

/// Address of element (row, column).
template <class Byte, class AnyView>
Byte* address(const AnyView& x, int64_t row, int64_t column) {
  return static_cast<Byte*>(x.data) + (row * x.strides[0] + column) * size_of(x.dtype);
}

/// The rows of `x` from (row, column) on; (column, row) if transposed.
TileRows rows_from(const ConstView& x, int64_t row, int64_t column, bool transposed) {
  return {transposed ? address<const char>(x, column, row) : address<const char>(x, row, column), x.dtype,
          x.strides[0]};
}

template <class C>
int64_t scratch_bytes() {
  return MatmulScratch<C>(nullptr).pieces.bytes();
}

template <class C, class Isa>
void run_tiles(const CpuStream& stream, const MatmulArgs& args) {
  const MatmulExtents size = matmul_extents(args);
  const int64_t columns = (size.n + kMatmulColumns - 1) / kMatmulColumns;
  const int64_t num_tiles = (size.m + kMatmulRows - 1) / kMatmulRows * columns;
#pragma omp parallel for num_threads(stream.num_threads) if (stream.num_threads > 1 && num_tiles > 1)
  for (int64_t i = 0; i < num_tiles; ++i) {
    const int64_t row = i / columns * kMatmulRows, column = i % columns * kMatmulColumns;
    MatmulTile tile{.rows = std::min(kMatmulRows, size.m - row),
                    .columns = std::min(kMatmulColumns, size.n - column),
                    .depth = size.k,
                    .a = rows_from(args.a, row, 0, args.transpose_a),
                    .b = rows_from(args.b, 0, column, args.transpose_b),
                    .transpose_a = args.transpose_a,
                    .transpose_b = args.transpose_b,
                    .accumulate = args.accumulate,
                    .bias = {},
                    .c = {address<char>(args.c, row, column), args.c.dtype, args.c.strides[0]},
                    .scratch = static_cast<char*>(args.workspace.data) + omp_get_thread_num() * scratch_bytes<C>()};
    if (args.bias.defined())
      tile.bias = {static_cast<const char*>(args.bias.data) + column * size_of(args.bias.dtype), args.bias.dtype, 0};
    matmul_tile<Isa, C>(tile);
  }
}

}  // namespace

int64_t tiled_matmul_workspace_bytes(const CpuStream& stream, const MatmulArgs& args) {
  return stream.num_threads * (args.a.dtype == DType::kFloat64 ? scratch_bytes<double>() : scratch_bytes<float>());
}

void tiled_matmul(InstructionSet set, const CpuStream& stream, const MatmulArgs& args) {
  dispatch_instruction_set(set, [&]<class Isa>() {
    if (args.a.dtype == DType::kFloat64)
      run_tiles<double, Isa>(stream, args);
    else
      run_tiles<float, Isa>(stream, args);
  });
}

}  // namespace megatron::kernels
