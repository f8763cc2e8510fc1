#include "megatron/kernels/matmul.h"

#include <algorithm>
#include <bit>

#include "megatron/kernels/cpu/matmul_extents.h"
#include "megatron/kernels/cpu/matmul_library.h"
#include "megatron/kernels/cpu/matmul_tiled.h"

namespace megatron::kernels {
namespace {

void check(const MatmulArgs& args) {
  const MatmulExtents size = matmul_capacity(args);
  const Shape a = args.transpose_a ? Shape{size.k, size.m} : Shape{size.m, size.k};
  const Shape b = args.transpose_b ? Shape{size.n, size.k} : Shape{size.k, size.n};
  require<ShapeError>(args.a.shape == a && args.b.shape == b,
                      "[matmul] a {} and b {} (transposed: {}, {}) do not give {}.", args.a.shape, args.b.shape,
                      args.transpose_a, args.transpose_b, args.c.shape);
  const DType dtype = args.a.dtype;
  const auto fits = [&](DType other) {
    return other == dtype || (other == DType::kFloat32 && dtype != DType::kFloat64);
  };
  const bool has_bias = args.bias.shape.rank() > 0;
  require<DtypeError>(
      is_floating(dtype) && args.b.dtype == dtype && fits(args.c.dtype) && (!has_bias || fits(args.bias.dtype)),
      "[matmul] a {}, b {}, c {}, bias {}: a and b must have the same floating dtype; c and bias too, or float32 if "
      "they "
      "are half precision.",
      dtype, args.b.dtype, args.c.dtype, has_bias ? name_of(args.bias.dtype) : "none");
}

/// The shape by which the library identifies a matmul. The bias is present if it has a shape, as data is null on meta.
MatmulShape library_shape(const CpuStream& stream, const MatmulArgs& args, const MatmulExtents& size) {
  return {.m = size.m,
          .n = size.n,
          .k = size.k,
          .a_stride = args.a.strides[0],
          .b_stride = args.b.strides[0],
          .c_stride = args.c.strides[0],
          .a = args.a.dtype,
          .c = args.c.dtype,
          .bias = args.bias.dtype,
          .has_bias = args.bias.shape.rank() > 0,
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .accumulate = args.accumulate,
          .num_threads = stream.num_threads};
}

/// Bounded sizes differ from step to step, and preparing a matmul takes 0.3 ms. So a bounded size is split into pieces
/// of numbers with at most four significant bits, of which there are few: 1000 = 960 + 40. The smallest such number
/// above `size` is size + piece_step(size).
int64_t piece_step(int64_t size) {
  return int64_t{1} << std::max(0, static_cast<int>(std::bit_width(static_cast<uint64_t>(size))) - 4);
}
int64_t first_piece(int64_t size, bool bounded) { return bounded ? size - size % piece_step(size) : size; }

/// Calls f(piece) with every piece into which a size may be split.
template <class F>
void for_each_possible_piece(int64_t capacity, bool bounded, F&& f) {
  if (!bounded) return f(capacity);
  for (int64_t size = 1; size <= capacity; size += piece_step(size)) f(size);
}

bool has_bounded_rows(const MatmulArgs& args) { return args.c.is_bounded || (!args.transpose_a && args.a.is_bounded); }
bool has_bounded_depth(const MatmulArgs& args) {
  return (args.transpose_a && args.a.is_bounded) || (!args.transpose_b && args.b.is_bounded);
}

/// Element (row, column) of a row-major view.
template <class Byte, class AnyView>
Byte* address(const AnyView& x, int64_t row, int64_t column) {
  return static_cast<Byte*>(x.data) + (row * x.strides[0] + column) * size_of(x.dtype);
}

/// Rows [row, row + piece) of c and terms [depth, depth + piece) of its sums.
void run_piece(const CpuStream& stream, const MatmulArgs& args, int64_t row, int64_t depth,
               const MatmulExtents& piece) {
  MatmulShape shape = library_shape(stream, args, piece);
  shape.has_bias &= depth == 0;
  shape.accumulate |= depth > 0;
  library_matmul(
      stream, shape,
      {.a = args.transpose_a ? address<const char>(args.a, depth, row) : address<const char>(args.a, row, depth),
       .b = args.transpose_b ? address<const char>(args.b, 0, depth) : address<const char>(args.b, depth, 0),
       .bias = args.bias.data,
       .c = address<char>(args.c, row, 0),
       .workspace = args.workspace.data});
}

}  // namespace

int64_t matmul_workspace_bytes(const CpuStream& stream, const MatmulArgs& args) {
  check(args);
  const MatmulExtents capacity = matmul_capacity(args);
  if (capacity.m == 0 || capacity.n == 0) return 0;
  if (capacity.k == 0 || !library_has_matmul(stream, library_shape(stream, args, capacity)))
    return tiled_matmul_workspace_bytes(stream, args);
  const bool bounded_rows = has_bounded_rows(args), bounded_depth = has_bounded_depth(args);
  int64_t bytes = bounded_depth ? tiled_matmul_workspace_bytes(stream, args) : 0;  // if the sums turn out empty
  for_each_possible_piece(capacity.m, bounded_rows, [&](int64_t m) {
    for_each_possible_piece(capacity.k, bounded_depth, [&](int64_t k) {
      MatmulShape shape = library_shape(stream, args, {m, capacity.n, k});
      bytes = std::max(bytes, library_matmul_workspace_bytes(stream, shape));
      if (!bounded_depth) return;
      shape.has_bias = false;
      shape.accumulate = true;
      bytes = std::max(bytes, library_matmul_workspace_bytes(stream, shape));
    });
  });
  return bytes;
}

void matmul(const CpuStream& stream, const MatmulArgs& args) {
  check(args);
  const MatmulExtents size = matmul_extents(args);
  if (size.m == 0 || size.n == 0) return;
  if (size.k == 0 || !library_has_matmul(stream, library_shape(stream, args, matmul_capacity(args))))
    return tiled_matmul(widest_instruction_set(), stream, args);
  for (int64_t row = 0; row < size.m;) {
    const int64_t m = first_piece(size.m - row, has_bounded_rows(args));
    for (int64_t depth = 0; depth < size.k;) {
      const int64_t k = first_piece(size.k - depth, has_bounded_depth(args));
      run_piece(stream, args, row, depth, {m, size.n, k});
      depth += k;
    }
    row += m;
  }
}

}  // namespace megatron::kernels
