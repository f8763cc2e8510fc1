#include "megatron/kernels/cuda/embedding.h"

#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/cuda/random.cuh"
#include "megatron/kernels/cuda/row_scatter.cuh"

namespace megatron::kernels {
namespace {

/// Row of the table for each row of the output; -1 where the table does not have it.
struct TableRows {
  Indices ids;
  SequenceLayoutView layout;
  int64_t first_id, num_table_rows;

  TableRows(const EmbeddingIndex& index, int64_t rows)
      : ids(index.ids), layout(index.layout), first_id(index.first_id), num_table_rows(rows) {}
  __device__ int64_t operator()(int64_t row) const {
    const int64_t table_row = (ids ? ids[row] : position_of(layout, row)) - first_id;
    return table_row >= 0 && table_row < num_table_rows ? table_row : -1;
  }
};

struct Forward {
  TableRows table_rows;
  Operand table, y;
  bool accumulate;

  __device__ void operator()(int64_t row, int64_t begin, int n) const {
    const int64_t table_row = table_rows(row);
    if (table_row < 0 && accumulate) return;
    Pack out = table_row < 0 ? Pack{} : load(table, table_row, begin, n);
    if (accumulate) {
      const Pack old = load(y, row, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] = old.v[e] + out.v[e];
    }
    store(y, row, begin, n, out);
  }
};

__global__ void list_moves(TableRows table_rows, Extent extent, unsigned long long* moves) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (row >= extent.rows) return;
  const int64_t target = row < extent.true_rows() ? table_rows(row) : -1;
  moves[row] = target < 0 ? kNoMove : static_cast<unsigned long long>(target) << 32 | static_cast<uint32_t>(row);
}

}  // namespace

void embedding_forward(const CudaStream& stream, const EmbeddingForwardArgs& args) {
  for_each_pack(
      stream, "embedding_forward", Extent(args.y),
      Forward{TableRows(args.index, args.table.shape[0]), Operand(args.table), Operand(args.y), args.accumulate});
}

void embedding_backward(const CudaStream& stream, const EmbeddingBackwardArgs& args) {
  if (!args.accumulate) fill(stream, {.y = args.dtable});
  const Extent extent(args.dy);
  if (extent.is_empty()) return;
  unsigned long long* moves = moves_of(args.workspace, extent.rows);
  list_moves<<<static_cast<unsigned>((extent.rows + kBlockThreads - 1) / kBlockThreads), kBlockThreads, 0,
               stream.stream>>>(TableRows(args.index, args.dtable.shape[0]), extent, moves);
  check_launch("embedding_backward");
  sort_moves(stream, moves, extent.rows);
  add_moved_rows(stream, moves, extent.rows, args.dy, args.dtable, args.accumulate);
}

}  // namespace megatron::kernels
