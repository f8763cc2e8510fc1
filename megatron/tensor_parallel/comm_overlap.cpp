#include "megatron/tensor_parallel/comm_overlap.h"

#include <algorithm>

#include "megatron/kernels/elementwise.h"
#include "megatron/tensor_parallel/collectives.h"

namespace megatron {
namespace {

/// Some of the rows of each rank. The ranks' rows of a part lie one after the other where the part is by itself, and
/// `num_rows` apart among all rows.
struct RowPart {
  int64_t begin, length;
  int64_t num_rows;  // of a rank

  bool is_whole() const { return length == num_rows; }
  /// Returns the rows of ranks [first, end), which are one after the other among all rows too if there are several.
  Tensor in_part(const Tensor& part, int first, int end) const {
    return part.slice(0, first * length, (end - first) * length);
  }
  Tensor in_all(const Tensor& all, int first, int end) const {
    return all.slice(0, first * num_rows + begin, (end - first) * length);
  }
};

/// Returns parts of equal length, of which the last may be shorter; there are no empty ones.
std::vector<RowPart> split_rows(int64_t num_rows, int64_t num_splits) {
  const int64_t length = (num_rows + num_splits - 1) / num_splits;
  std::vector<RowPart> parts;
  for (int64_t begin = 0; begin < num_rows; begin += length)
    parts.push_back({begin, std::min(length, num_rows - begin), num_rows});
  return parts;
}

constexpr int kNobody = -1;

/// f(first, end) for ranks but `left_out`: each, or as many as are side by side where the part is whole.
template <class F>
void for_each_run(const RowPart& part, int num_ranks, int left_out, F&& f) {
  for (int first = 0, end = 0; first < num_ranks; first = end) {
    end = first + 1;
    if (first == left_out) continue;
    while (part.is_whole() && end < num_ranks && end != left_out) ++end;
    f(first, end);
  }
}

/// The rows of `part`, of all ranks, to their places among all rows.
void copy_to_all(const Context& ctx, const RowPart& part, const Tensor& rows, int num_ranks, const Tensor& all) {
  const auto by_rank = [&](const Tensor& x, int64_t rows_of_rank) {
    return x.reshape({num_ranks, rows_of_rank, x.num_elements() / (num_ranks * rows_of_rank)});
  };
  const Tensor from = by_rank(rows, part.length);
  Tensor to = by_rank(all, part.num_rows).slice(1, part.begin, part.length);
  launch(ctx, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = from.view(), .y = to.view()}); });
}

}  // namespace

void multiply_while_gathering(const Context& ctx, const ProcessGroup& group, const Tensor& x, int64_t num_splits,
                              std::string_view site, const RowProduct& product, Tensor result, Tensor* gathered) {
  const std::vector<RowPart> parts = split_rows(x.size(0), num_splits);
  std::vector<Pending> arriving;
  arriving.reserve(parts.size());
  for (const RowPart& part : parts)
    arriving.push_back(start_gather(ctx, group, x.slice(0, part.begin, part.length), site));
  if (gathered && parts.size() > 1) {
    Shape shape = x.shape();
    shape[0] *= group.size();
    *gathered = ctx.empty(site, shape, x.dtype());
  }
  const int own = group.rank();
  product(x, result.slice(0, own * x.size(0), x.size(0)));
  for (size_t i = 0; i < parts.size(); ++i) {
    const RowPart& part = parts[i];
    arriving[i].work.wait();
    const Tensor rows = std::move(arriving[i].tensor);
    for_each_run(part, group.size(), own,
                 [&](int first, int end) { product(part.in_part(rows, first, end), part.in_all(result, first, end)); });
    if (gathered && parts.size() == 1) *gathered = rows;
    if (gathered && parts.size() > 1) copy_to_all(ctx, part, rows, group.size(), *gathered);
  }
}

void PendingParts::wait() {
  for (Work& work : works) work.wait();
  works.clear();
}

PendingParts multiply_and_scatter(const Context& ctx, const ProcessGroup& group, const Tensor& x, int64_t last_size,
                                  int64_t num_splits, std::string_view site, const RowProduct& product) {
  Shape shape = x.shape();
  shape[-1] = last_size;
  Tensor products = ctx.empty(site, shape, x.dtype());
  shape[0] = rows_of_rank(group, x.size(0));
  PendingParts sum;
  int64_t done = 0;
  for (const RowPart& part : split_rows(shape[0], num_splits)) {
    const Tensor partial = products.slice(0, done, group.size() * part.length);
    for_each_run(part, group.size(), kNobody,
                 [&](int first, int end) { product(part.in_all(x, first, end), part.in_part(partial, first, end)); });
    if (!sum.tensor.defined()) sum.tensor = ctx.empty(site, shape, x.dtype(), MemoryUse::kCommunication);
    sum.works.push_back(start_reduce_scatter(group, partial, sum.tensor.slice(0, part.begin, part.length), site));
    done += partial.size(0);
  }
  return sum;
}

}  // namespace megatron
