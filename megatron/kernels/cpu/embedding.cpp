#include "megatron/kernels/embedding.h"

#include "megatron/kernels/cpu/per_row.h"
#include "megatron/kernels/cpu/row_scatter.h"
#include "megatron/kernels/cpu/simd.h"

namespace megatron::kernels {
namespace {
/// Row of the table for each row of the output; -1 if the table does not have it.
class TableRows {
 public:
  TableRows(const EmbeddingIndex& index, int64_t num_table_rows)
      : ids_(index.ids), layout_(index.layout), first_id_(index.first_id), num_table_rows_(num_table_rows) {}
  int64_t operator()(int64_t row) const {
    const int64_t id = ids_ ? ids_[row] : layout_.position(row / layout_.b, row % layout_.b);
    const int64_t table_row = id - first_id_;
    return table_row >= 0 && table_row < num_table_rows_ ? table_row : -1;
  }

 private:
  IndexReader ids_;
  SequenceLayoutView layout_;
  int64_t first_id_, num_table_rows_;
};

template <class C>
void forward(const CpuStream& stream, const EmbeddingForwardArgs& args) {
  const int64_t h = args.y.shape[-1];
  const TableRows table_rows(args.index, args.table.shape[0]);
  const RowReader<C> table(args.table);
  const RowWriter<C> y(args.y);
  const auto piece_of_row = [&](int64_t row, int64_t table_row, int64_t begin, int64_t n) {
    Piece<C> table_buffer, y_buffer;
    C* out = y.target(row, begin, y_buffer);
    if (table_row < 0) {
      std::fill_n(out, n, C(0));
    } else {
      const C* in = table.read(table_row, begin, n, table_buffer);
      if (args.accumulate) {
        const C* old = y.read(row, begin, n, y_buffer);
        simd_for(n, [=](int64_t i) { out[i] = old[i] + in[i]; });
      } else {
        std::copy_n(in, n, out);
      }
    }
    y.store(row, begin, n, out);
  };
  parallel_for(stream, args.y.num_rows(), h, [&](int64_t row, int64_t end) {
    for (; row < end; ++row) {
      const int64_t table_row = table_rows(row);
      if (table_row < 0 && args.accumulate) continue;
      for_each_piece(h, [&](int64_t begin, int64_t n) { piece_of_row(row, table_row, begin, n); });
    }
  });
}
}  // namespace

void embedding_forward(const CpuStream& stream, const EmbeddingForwardArgs& args) {
  dispatch_compute(args.table.dtype, [&]<class C>() { forward<C>(stream, args); });
}

void embedding_backward(const CpuStream& stream, const EmbeddingBackwardArgs& args) {
  const TableRows table_rows(args.index, args.dtable.shape[0]);
  RowScatter scatter(args.workspace);
  const int64_t num_rows = args.dy.num_rows();
  for (int64_t row = 0; row < num_rows; ++row)
    if (const int64_t table_row = table_rows(row); table_row >= 0) scatter.add(row, table_row);
  scatter.run(stream, args.dy, args.dtable, args.accumulate);
}

}  // namespace megatron::kernels
