// Sizes of a matmul.
#pragma once

#include <algorithm>
#include <cstdint>

#include "megatron/kernels/matmul.h"

namespace megatron::kernels {

struct MatmulExtents {
  int64_t m = 0, n = 0, k = 0;
};

/// Sizes known to the host: bounded rows have their capacity.
inline MatmulExtents matmul_capacity(const MatmulArgs& args) {
  return {args.c.shape[0], args.c.shape[1], args.a.shape[args.transpose_a ? 0 : 1]};
}

/// True sizes. Reads the counts.
inline MatmulExtents matmul_extents(const MatmulArgs& args) {
  MatmulExtents extents = matmul_capacity(args);
  extents.m = args.c.rows();
  int64_t& rows_of_a = args.transpose_a ? extents.k : extents.m;
  rows_of_a = std::min(rows_of_a, args.a.rows());
  if (!args.transpose_b) extents.k = std::min(extents.k, args.b.rows());
  return extents;
}

}  // namespace megatron::kernels
