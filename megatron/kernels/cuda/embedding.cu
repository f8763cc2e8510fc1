#include "megatron/kernels/embedding.h"

#include "megatron/kernels/cuda/random.cuh"
#include "megatron/kernels/cuda/row_gather.cuh"
#include "megatron/kernels/cuda/row_scatter.cuh"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {
namespace {

/// Row of the table for each row of the output; -1 if the table does not have it.
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

template <class X>
struct Forward {
  TableRows table_rows;
  X y;
  bool accumulate;

  __device__ int64_t source(int64_t row) const { return table_rows(row); }
  __device__ void finish(int64_t row, int64_t begin, int n, bool has_source, Pack out) const {
    if (!has_source && accumulate) return;
    if (accumulate) {
      const Pack old = load(y, row, begin, n);
#pragma unroll
      for (int e = 0; e < kPack; ++e) out.v[e] = old.v[e] + out.v[e];
    }
    store(y, row, begin, n, out);
  }
};

}  // namespace

void embedding_forward(const CudaStream& stream, const EmbeddingForwardArgs& args) {
  const TableRows table_rows(args.index, args.table.shape[0]);
  const Operand table(args.table), y(args.y);
  with_operand_type(args.y.shape[-1], {table, y}, [&](auto type) {
    using X = decltype(type);
    gather(stream, "embedding_forward", Extent(args.y), X(table), Forward<X>{table_rows, X(y), args.accumulate});
  });
}

void embedding_backward(const CudaStream& stream, const EmbeddingBackwardArgs& args) {
  if (!args.accumulate) fill(stream, {.y = args.dtable});
  const Extent extent(args.dy);
  if (extent.is_empty()) return;
  scatter_rows(stream, "embedding_backward", extent, TableRows(args.index, args.dtable.shape[0]), args.dy, args.dtable,
               args.accumulate, args.workspace);
}

}  // namespace megatron::kernels
